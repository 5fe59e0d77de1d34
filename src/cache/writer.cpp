#include "cache/writer.hpp"

#include <system_error>
#include <utility>

#include <pthread.h>

namespace kiln::cache {

Writer::~Writer() {
  std::thread thread;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(thread, thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Writer::write(std::function<void()> job) {
  {
    const base::MutexLock lock(mutex_);
    if (queue_.size() < bound_ && start()) {
      queue_.push_back(std::move(job));
      ++queued_;
      changed_.notify_all();
      return;
    }
  }
  job();
}

bool Writer::start() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
    runner_ = thread_.get_id();
  } catch (const std::system_error&) {
    return false;  // No more threads to be had: whoever compiles saves.
  }
  return true;
}

void Writer::flush() {
  const base::MutexLock lock(mutex_);
  // Its present job would wait for itself.
  if (runner_ == std::this_thread::get_id()) return;
  const std::uint64_t target = queued_;
  while (done_ < target) changed_.wait(mutex_);
}

void Writer::run() {
  pthread_setname_np(pthread_self(), "kiln-writer");
  for (;;) {
    std::function<void()> job;
    {
      const base::MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      job();
    } catch (...) {
      // A shared store or a log of the user's own may throw; what it did not save is not saved, and nothing else.
    }
    job = nullptr;
    const base::MutexLock lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace kiln::cache
