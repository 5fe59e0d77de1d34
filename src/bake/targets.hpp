#pragma once

#include <memory>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/log.hpp>
#include <kiln/result.hpp>

#include "key/recorded_request.hpp"

namespace kiln::baking {

/// A target of bake(), and what compiles for it.
struct Target {
  /// As the user writes it, as in "cuda:sm_90".
  std::string name;
  std::shared_ptr<Backend> backend;
  /// As open_offline() takes it; empty for a device of this machine.
  std::string offline = {};

  /// Whether a request of its API can be compiled for it.
  bool takes(const key::RecordedRequest& request) const;
};

/// Opens the targets of BakeOptions::targets, each once. With `adds_ptx`, PTX of the newest CUDA architecture is
/// the last one. Fails with invalid_request for a name that is no target, and as open_offline() and open_device()
/// do.
Result<std::vector<Target>> open_targets(const std::vector<std::string>& names, bool adds_ptx, const Log& log);

}  // namespace kiln::baking
