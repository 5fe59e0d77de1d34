#include <kiln/program.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "memory/resident.hpp"

namespace kiln {

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::compiled: return "compiled";
    case Origin::disk: return "disk";
    case Origin::bundle: return "bundle";
    case Origin::shared: return "shared";
    case Origin::added: return "added";
  }
  return "unknown";
}

Program::Program(const Program& other) noexcept
    : resident_(other.resident_), entry_(other.entry_), stripe_(other.stripe_) {
  if (resident_ != nullptr) resident_->copy(stripe_);
}

void Program::release() noexcept { resident_->give_back(stripe_); }

const Key& Program::key() const noexcept { return resident_->key(); }
Module& Program::module() const noexcept { return entry_ != nullptr ? *entry_ : resident_->module(); }

Result<Program> Program::entry(std::string_view name) const {
  Module* entry = resident_->module().entry(name);
  if (entry == nullptr) {
    const auto entries = resident_->module().entries();
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has no entry point called {}; {}", this->name(), name,
                             entries.empty() ? "its backend cannot choose entry points by name"
                                             : fmt::format("it has {}", fmt::join(entries, ", "))));
  }
  Program chosen = *this;
  chosen.entry_ = entry;
  return chosen;
}

Origin Program::origin() const noexcept { return resident_->origin(); }
bool Program::is_complete() const noexcept { return resident_->module().is_complete(); }
std::chrono::nanoseconds Program::compile_time() const noexcept { return resident_->compile_time(); }
bool Program::stored() const noexcept { return resident_->stored(); }
double Program::gflops() const noexcept { return resident_->gflops(); }
double Program::gbps() const noexcept { return resident_->gbps(); }
void Program::note_gflops(double gflops) const noexcept { resident_->note_gflops(gflops); }
void Program::note_gbps(double gbps) const noexcept { resident_->note_gbps(gbps); }

}  // namespace kiln
