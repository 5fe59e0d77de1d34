#pragma once

#include "base/event.hpp"

namespace kiln::cli {

/// Ctrl-C and SIGTERM end a long command in order; a second one ends the process. One object at a time.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// Becomes readable with the first signal.
  int descriptor() const noexcept { return event_.descriptor(); }
  bool happened() const;

 private:
  const base::Event event_;
};

}  // namespace kiln::cli
