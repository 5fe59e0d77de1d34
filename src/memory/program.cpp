#include <kiln/program.hpp>

#include "memory/resident.hpp"

namespace kiln {

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::compiled: return "compiled";
    case Origin::disk: return "disk";
    case Origin::shared: return "shared";
    case Origin::added: return "added";
  }
  return "unknown";
}

Program::Program(const Program& other) noexcept : resident_(other.resident_), stripe_(other.stripe_) {
  if (resident_ != nullptr) resident_->copy(stripe_);
}

void Program::release() noexcept { resident_->give_back(stripe_); }

const Key& Program::key() const noexcept { return resident_->key(); }
Module& Program::module() const noexcept { return resident_->module(); }
Origin Program::origin() const noexcept { return resident_->origin(); }
std::chrono::nanoseconds Program::compile_time() const noexcept { return resident_->compile_time(); }
bool Program::stored() const noexcept { return resident_->stored(); }
double Program::gflops() const noexcept { return resident_->gflops(); }
double Program::gbps() const noexcept { return resident_->gbps(); }
void Program::note_gflops(double gflops) const noexcept { resident_->note_gflops(gflops); }
void Program::note_gbps(double gbps) const noexcept { resident_->note_gbps(gbps); }

}  // namespace kiln
