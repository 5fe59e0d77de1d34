#pragma once

#include <optional>

#include <kiln/kernels/tuner.hpp>

#include "kernels/tune/records.hpp"

namespace kiln::tune {

/// A record of the call, without trials.
TuneRecord record_for(const Tunable& tunable);
/// Whether a call has such a variant: of listed values that fit. Files may hold any numbers.
bool has(const Tunable& tunable, const Variant& variant);
/// The same variant as one for any sizes.
Variant for_any(Variant variant, const Tunable& tunable);
/// The best that is known for a call: for its sizes, for the nearest, or for the nearest on a relative of the
/// device. Nothing where there is none that it can run.
std::optional<Variant> best_known(const Tunable& tunable, const Records& own, const Records& relatives);

}  // namespace kiln::tune
