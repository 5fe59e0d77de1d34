#include <kiln/log.hpp>

#include <cstdlib>
#include <memory>

#include <pthread.h>
#include <unistd.h>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/process.hpp"

namespace kiln {
namespace {

LogLevel level_from_environment() {
  const char* wanted = base::environment("KILN_LOG");
  const std::string_view text = wanted != nullptr ? wanted : "";
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "error") return LogLevel::error;
  if (text == "off") return LogLevel::off;
  return LogLevel::warning;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: break;
  }
  return spdlog::level::off;
}

Log::Sink standard_error() {
  // Replaces spdlog's mutex, which a forked child could inherit locked. Never destroyed, because destructors of
  // static variables log too.
  static base::ForkMutex& mutex = *std::make_unique<base::ForkMutex>(base::ForkMutex::Order::inner).release();
  auto logger = std::make_shared<spdlog::logger>("kiln", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
  logger->set_level(spdlog::level::trace);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e kiln %^%l%$ %v");
  return [logger](const LogRecord& record) {
    const base::MutexLock lock(mutex);
    logger->log(to_spdlog(record.level), "[{}] {}", record.thread, record.message);
  };
}

std::string thread_name() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string(name) + "/" + std::to_string(gettid());
}

}  // namespace

struct Log::State {
  LogLevel level;
  Sink sink;
};

Log::Log() : Log(level_from_environment(), standard_error()) {}

Log::Log(LogLevel level, Sink sink) : state_(std::make_shared<State>(State{level, std::move(sink)})) {}

bool Log::enabled(LogLevel level) const noexcept {
  return level >= state_->level && level != LogLevel::off && state_->sink != nullptr;
}

void Log::write(LogLevel level, std::string message) const {
  if (!enabled(level)) return;
  try {
    state_->sink({level, thread_name(), std::move(message)});
  } catch (...) {
    // A failure to log must not change the program's behaviour; driver callbacks log through here, too.
  }
}

}  // namespace kiln
