// The functions of Levels that answer requests on other threads.
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cache/levels.hpp"

namespace kiln::cache {

void Levels::get_async(Request request, Callback done) {
  if (Program program = table_.find(request.key().digest)) return call(done, std::move(program));
  if (auto refusal = refusal_of_call()) return call(done, failure(std::move(*refusal)));
  if (!backend_->usable_from_any_thread()) return call(done, get(request));
  // The caller may be a worker inside a backend, and may wait for the result.
  workers_.let_caller_wait();
  answer_later(std::make_shared<Asked>(Asked{std::move(request), std::move(done)}));
}

Future<Program> Levels::get_async(Request request) {
  const Promise<Program> promise;
  get_async(std::move(request), [promise](Result<Program> program) { promise.set(std::move(program)); });
  return promise.future();
}

void Levels::answer_later(const std::shared_ptr<Asked>& asked) {
  workers_.submit([this, asked] {
    // A worker must not block on another thread's flight, because that flight may need a worker.
    const auto then = [this, asked](const Outcome& outcome) {
      // A find() or warm() that found nothing does not answer a get().
      if (outcome && !*outcome) return answer_later(asked);
      ++counters_.joined;
      workers_.submit([this, asked, outcome] {
        answer(*asked, outcome ? Result<Program>(**outcome) : Result<Program>(outcome.error()));
      });
    };
    if (flights_.when_landed(asked->request.key().digest, then)) return;
    const auto waited = asked->postponed ? std::chrono::steady_clock::now() - *asked->postponed
                                         : std::chrono::steady_clock::duration(0);
    const bool compiles = permits(CompilePolicy::never, asked->request);
    auto found =
        find_or_compile(asked->request, {.if_missing = compiles ? IfMissing::compile : IfMissing::come_back,
                                         .if_locked = if_locked_after(waited),
                                         .ask_stores = compiles ? AskStores::briefly : AskStores::patiently});
    if (found && !*found && !compiles) found = failure(not_compiled(asked->request));
    if (found && !*found) return postpone(asked);
    answer(*asked, found ? Result<Program>(std::move(**found)) : std::move(found).error());
  });
}

void Levels::postpone(const std::shared_ptr<Asked>& asked) {
  {
    const base::MutexLock lock(postponed_mutex_);
    postponed_.push_back(asked);
    if (asked->postponed) return;
    asked->postponed = std::chrono::steady_clock::now();
    // Then a worker retries them already.
    if (++postponed_left_ > 1) return;
  }
  workers_.submit([this] { retry_postponed(); });
}

void Levels::retry_postponed() {
  const WorkerPool::Uncounted waiting(workers_);
  for (;;) {
    constexpr auto pause = std::chrono::milliseconds(3);
    // Other machines are not asked as often as other processes.
    constexpr auto pause_for_fleet = std::chrono::milliseconds(20);
    std::this_thread::sleep_for(shared_.waits_for_fleet() ? pause_for_fleet : pause);
    std::vector<std::shared_ptr<Asked>> again;
    {
      const base::MutexLock lock(postponed_mutex_);
      if (postponed_left_ == 0) return;
      again.swap(postponed_);
    }
    for (const auto& asked : again) answer_later(asked);
  }
}

void Levels::answer(const Asked& asked, Result<Program> program) {
  if (asked.postponed) {
    const base::MutexLock lock(postponed_mutex_);
    --postponed_left_;
  }
  // The callback may wait for other programs of this cache.
  const WorkerPool::Uncounted waiting(workers_);
  call(asked.done, std::move(program));
}

void Levels::call(const Callback& done, Result<Program> program) {
  try {
    done(std::move(program));
  } catch (const std::exception& exception) {
    options_.log.error(fmt::format("a callback of get_async() threw an exception: {}", exception.what()));
  } catch (...) {
    options_.log.error("a callback of get_async() threw an exception");
  }
}

}  // namespace kiln::cache
