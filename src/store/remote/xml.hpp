#pragma once

#include <functional>
#include <string_view>

namespace kiln::store {

/// Reads the XML that servers answer with: elements with text. Calls `element` at the end of each one, with its
/// name behind those of the elements around it, without the prefixes of namespaces, as in
/// "ListBucketResult/Contents/Key", and its text. Returns whether the whole text is well-formed, is nested at most
/// 16 deep, and has neither a DOCTYPE, which could define entities, nor CDATA.
bool read_xml(std::string_view text,
              const std::function<void(std::string_view path, std::string_view text)>& element);

}  // namespace kiln::store
