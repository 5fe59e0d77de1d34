#include "backend/opengl/reflection.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace kiln::opengl {
namespace {

using backend::GlslResource;
using Kind = GlslResource::Kind;

/// A type of numbers. A vector has one column.
struct NumberType {
  GLenum type = 0;
  std::uint32_t columns = 1;
  std::uint32_t rows = 1;
  std::uint32_t scalar = 4;
  void (*set)(GLuint program, GLint location, GLsizei count, const void* value) = nullptr;

  std::uint32_t bytes() const noexcept { return columns * rows * scalar; }
};

// clang-format off
#define KILN_VECTORS(type, scalar, suffix, one, two, three, four) \
  {one, 1, 1, sizeof(type), [](GLuint p, GLint l, GLsizei n, const void* v) { glProgramUniform1##suffix(p, l, n, static_cast<const scalar*>(v)); }}, \
  {two, 1, 2, sizeof(type), [](GLuint p, GLint l, GLsizei n, const void* v) { glProgramUniform2##suffix(p, l, n, static_cast<const scalar*>(v)); }}, \
  {three, 1, 3, sizeof(type), [](GLuint p, GLint l, GLsizei n, const void* v) { glProgramUniform3##suffix(p, l, n, static_cast<const scalar*>(v)); }}, \
  {four, 1, 4, sizeof(type), [](GLuint p, GLint l, GLsizei n, const void* v) { glProgramUniform4##suffix(p, l, n, static_cast<const scalar*>(v)); }}
#define KILN_MATRIX(type, scalar, columns, rows, size, suffix) \
  {type, columns, rows, sizeof(scalar), [](GLuint p, GLint l, GLsizei n, const void* v) { glProgramUniformMatrix##size##suffix(p, l, n, GL_FALSE, static_cast<const scalar*>(v)); }}
#define KILN_MATRICES(prefix, scalar, suffix) \
  KILN_MATRIX(prefix##_MAT2, scalar, 2, 2, 2, suffix), \
  KILN_MATRIX(prefix##_MAT3, scalar, 3, 3, 3, suffix), \
  KILN_MATRIX(prefix##_MAT4, scalar, 4, 4, 4, suffix), \
  KILN_MATRIX(prefix##_MAT2x3, scalar, 2, 3, 2x3, suffix), \
  KILN_MATRIX(prefix##_MAT2x4, scalar, 2, 4, 2x4, suffix), \
  KILN_MATRIX(prefix##_MAT3x2, scalar, 3, 2, 3x2, suffix), \
  KILN_MATRIX(prefix##_MAT3x4, scalar, 3, 4, 3x4, suffix), \
  KILN_MATRIX(prefix##_MAT4x2, scalar, 4, 2, 4x2, suffix), \
  KILN_MATRIX(prefix##_MAT4x3, scalar, 4, 3, 4x3, suffix)

constexpr NumberType number_types[] = {
  KILN_VECTORS(GLfloat, GLfloat, fv, GL_FLOAT, GL_FLOAT_VEC2, GL_FLOAT_VEC3, GL_FLOAT_VEC4),
  KILN_VECTORS(GLint, GLint, iv, GL_INT, GL_INT_VEC2, GL_INT_VEC3, GL_INT_VEC4),
  KILN_VECTORS(GLuint, GLuint, uiv, GL_UNSIGNED_INT, GL_UNSIGNED_INT_VEC2, GL_UNSIGNED_INT_VEC3, GL_UNSIGNED_INT_VEC4),
  KILN_VECTORS(GLuint, GLuint, uiv, GL_BOOL, GL_BOOL_VEC2, GL_BOOL_VEC3, GL_BOOL_VEC4),
  KILN_VECTORS(GLdouble, GLdouble, dv, GL_DOUBLE, GL_DOUBLE_VEC2, GL_DOUBLE_VEC3, GL_DOUBLE_VEC4),
  KILN_VECTORS(GLint64, GLint64, i64vARB, GL_INT64_ARB, GL_INT64_VEC2_ARB, GL_INT64_VEC3_ARB, GL_INT64_VEC4_ARB),
  KILN_VECTORS(GLuint64, GLuint64, ui64vARB, GL_UNSIGNED_INT64_ARB, GL_UNSIGNED_INT64_VEC2_ARB, GL_UNSIGNED_INT64_VEC3_ARB, GL_UNSIGNED_INT64_VEC4_ARB),
  KILN_MATRICES(GL_FLOAT, GLfloat, fv),
  KILN_MATRICES(GL_DOUBLE, GLdouble, dv),
};
#undef KILN_VECTORS
#undef KILN_MATRICES
#undef KILN_MATRIX

struct OpaqueTypes {
  TextureTarget target;
  std::array<GLenum, 4> samplers;
  std::array<GLenum, 3> images;
};

constexpr OpaqueTypes opaque_types[] = {
  {{GL_TEXTURE_1D, GL_TEXTURE_BINDING_1D},
   {GL_SAMPLER_1D, GL_INT_SAMPLER_1D, GL_UNSIGNED_INT_SAMPLER_1D, GL_SAMPLER_1D_SHADOW},
   {GL_IMAGE_1D, GL_INT_IMAGE_1D, GL_UNSIGNED_INT_IMAGE_1D}},
  {{GL_TEXTURE_2D, GL_TEXTURE_BINDING_2D},
   {GL_SAMPLER_2D, GL_INT_SAMPLER_2D, GL_UNSIGNED_INT_SAMPLER_2D, GL_SAMPLER_2D_SHADOW},
   {GL_IMAGE_2D, GL_INT_IMAGE_2D, GL_UNSIGNED_INT_IMAGE_2D}},
  {{GL_TEXTURE_3D, GL_TEXTURE_BINDING_3D},
   {GL_SAMPLER_3D, GL_INT_SAMPLER_3D, GL_UNSIGNED_INT_SAMPLER_3D},
   {GL_IMAGE_3D, GL_INT_IMAGE_3D, GL_UNSIGNED_INT_IMAGE_3D}},
  {{GL_TEXTURE_CUBE_MAP, GL_TEXTURE_BINDING_CUBE_MAP},
   {GL_SAMPLER_CUBE, GL_INT_SAMPLER_CUBE, GL_UNSIGNED_INT_SAMPLER_CUBE, GL_SAMPLER_CUBE_SHADOW},
   {GL_IMAGE_CUBE, GL_INT_IMAGE_CUBE, GL_UNSIGNED_INT_IMAGE_CUBE}},
  {{GL_TEXTURE_RECTANGLE, GL_TEXTURE_BINDING_RECTANGLE},
   {GL_SAMPLER_2D_RECT, GL_INT_SAMPLER_2D_RECT, GL_UNSIGNED_INT_SAMPLER_2D_RECT, GL_SAMPLER_2D_RECT_SHADOW},
   {GL_IMAGE_2D_RECT, GL_INT_IMAGE_2D_RECT, GL_UNSIGNED_INT_IMAGE_2D_RECT}},
  {{GL_TEXTURE_1D_ARRAY, GL_TEXTURE_BINDING_1D_ARRAY},
   {GL_SAMPLER_1D_ARRAY, GL_INT_SAMPLER_1D_ARRAY, GL_UNSIGNED_INT_SAMPLER_1D_ARRAY, GL_SAMPLER_1D_ARRAY_SHADOW},
   {GL_IMAGE_1D_ARRAY, GL_INT_IMAGE_1D_ARRAY, GL_UNSIGNED_INT_IMAGE_1D_ARRAY}},
  {{GL_TEXTURE_2D_ARRAY, GL_TEXTURE_BINDING_2D_ARRAY},
   {GL_SAMPLER_2D_ARRAY, GL_INT_SAMPLER_2D_ARRAY, GL_UNSIGNED_INT_SAMPLER_2D_ARRAY, GL_SAMPLER_2D_ARRAY_SHADOW},
   {GL_IMAGE_2D_ARRAY, GL_INT_IMAGE_2D_ARRAY, GL_UNSIGNED_INT_IMAGE_2D_ARRAY}},
  {{GL_TEXTURE_CUBE_MAP_ARRAY, GL_TEXTURE_BINDING_CUBE_MAP_ARRAY},
   {GL_SAMPLER_CUBE_MAP_ARRAY, GL_INT_SAMPLER_CUBE_MAP_ARRAY, GL_UNSIGNED_INT_SAMPLER_CUBE_MAP_ARRAY, GL_SAMPLER_CUBE_MAP_ARRAY_SHADOW},
   {GL_IMAGE_CUBE_MAP_ARRAY, GL_INT_IMAGE_CUBE_MAP_ARRAY, GL_UNSIGNED_INT_IMAGE_CUBE_MAP_ARRAY}},
  {{GL_TEXTURE_BUFFER, GL_TEXTURE_BINDING_BUFFER},
   {GL_SAMPLER_BUFFER, GL_INT_SAMPLER_BUFFER, GL_UNSIGNED_INT_SAMPLER_BUFFER},
   {GL_IMAGE_BUFFER, GL_INT_IMAGE_BUFFER, GL_UNSIGNED_INT_IMAGE_BUFFER}},
  {{GL_TEXTURE_2D_MULTISAMPLE, GL_TEXTURE_BINDING_2D_MULTISAMPLE},
   {GL_SAMPLER_2D_MULTISAMPLE, GL_INT_SAMPLER_2D_MULTISAMPLE, GL_UNSIGNED_INT_SAMPLER_2D_MULTISAMPLE},
   {GL_IMAGE_2D_MULTISAMPLE, GL_INT_IMAGE_2D_MULTISAMPLE, GL_UNSIGNED_INT_IMAGE_2D_MULTISAMPLE}},
  {{GL_TEXTURE_2D_MULTISAMPLE_ARRAY, GL_TEXTURE_BINDING_2D_MULTISAMPLE_ARRAY},
   {GL_SAMPLER_2D_MULTISAMPLE_ARRAY, GL_INT_SAMPLER_2D_MULTISAMPLE_ARRAY, GL_UNSIGNED_INT_SAMPLER_2D_MULTISAMPLE_ARRAY},
   {GL_IMAGE_2D_MULTISAMPLE_ARRAY, GL_INT_IMAGE_2D_MULTISAMPLE_ARRAY, GL_UNSIGNED_INT_IMAGE_2D_MULTISAMPLE_ARRAY}},
};
// clang-format on

const NumberType* number_type(GLenum type) {
  const auto* found = std::ranges::find(number_types, type, &NumberType::type);
  return found != std::end(number_types) ? found : nullptr;
}

/// The kind of an opaque uniform; nullopt for numbers and unknown types.
std::optional<Kind> opaque_kind(GLenum type) {
  for (const OpaqueTypes& types : opaque_types) {
    if (std::ranges::find(types.samplers, type) != types.samplers.end()) return Kind::texture;
    if (std::ranges::find(types.images, type) != types.images.end()) return Kind::image;
  }
  return std::nullopt;
}

GLint count_of(GLuint program, GLenum interface) {
  GLint count = 0;
  glGetProgramInterfaceiv(program, interface, GL_ACTIVE_RESOURCES, &count);
  return std::max(count, 0);
}

template <std::size_t N>
std::array<GLint, N> properties(GLuint program, GLenum interface, GLuint index, const GLenum (&names)[N]) {
  std::array<GLint, N> values = {};
  glGetProgramResourceiv(program, interface, index, static_cast<GLsizei>(N), names, static_cast<GLsizei>(N),
                         nullptr, values.data());
  return values;
}

/// Empty if the driver does not know it, as for SPIR-V.
std::string name_of(GLuint program, GLenum interface, GLuint index) {
  const GLint length = properties(program, interface, index, {GL_NAME_LENGTH})[0];
  if (length <= 1) return {};
  std::string name(static_cast<std::size_t>(length), '\0');
  GLsizei written = 0;
  glGetProgramResourceName(program, interface, index, length, &written, name.data());
  name.resize(static_cast<std::size_t>(std::max(written, 0)));
  return name;
}

/// "lights[2]" is element 2 of "lights".
struct ElementName {
  std::string array;
  std::optional<std::uint32_t> element = {};
};

ElementName element_name(const std::string& name) {
  const std::size_t open = name.rfind('[');
  if (open == std::string::npos || !name.ends_with(']')) return {name};
  std::uint32_t element = 0;
  const char* end = name.data() + name.size() - 1;
  if (std::from_chars(name.data() + open + 1, end, element).ptr != end) return {name};
  return {name.substr(0, open), element};
}

/// One binding of a program.
struct Single {
  Kind kind = Kind::storage_buffer;
  ElementName name = {};
  std::uint32_t binding = 0;
  std::uint32_t unit = 0;
  std::uint64_t bytes = 0;
  GLenum type = 0;
  /// Of a block.
  GLuint index = 0;
  /// Of an image or a texture.
  GLint location = -1;
};

GLint most_units(Kind kind) {
  GLint most = 0;
  switch (kind) {
    case Kind::storage_buffer: glGetIntegerv(GL_MAX_SHADER_STORAGE_BUFFER_BINDINGS, &most); break;
    case Kind::uniform_buffer: glGetIntegerv(GL_MAX_UNIFORM_BUFFER_BINDINGS, &most); break;
    case Kind::image: glGetIntegerv(GL_MAX_IMAGE_UNITS, &most); break;
    default: glGetIntegerv(GL_MAX_COMBINED_TEXTURE_IMAGE_UNITS, &most); break;
  }
  return most;
}

class Reader {
 public:
  explicit Reader(GLuint program) : program_(program) {}

  ProgramInterface read() && {
    made_.takes.is_padded = true;
    made_.takes.has_bindings_of_elements = true;
    std::array<GLint, 3> size = {1, 1, 1};
    glGetProgramiv(program_, GL_COMPUTE_WORK_GROUP_SIZE, size.data());
    made_.takes.group_size = {size[0], size[1], size[2]};
    read_blocks(GL_SHADER_STORAGE_BLOCK, Kind::storage_buffer);
    read_blocks(GL_UNIFORM_BLOCK, Kind::uniform_buffer);
    read_storage_sizes();
    read_counters();
    choose_parameters();
    read_uniforms();
    if (count_of(program_, GL_COMPUTE_SUBROUTINE_UNIFORM) > 0)
      made_.problem = "it has subroutine uniforms, which Kiln cannot set";
    choose_units();
    merge_arrays();
    return std::move(made_);
  }

 private:
  void read_blocks(GLenum interface, Kind kind) {
    const auto count = static_cast<GLuint>(count_of(program_, interface));
    for (GLuint i = 0; i < count; ++i) {
      const auto [binding, bytes] = properties(program_, interface, i, {GL_BUFFER_BINDING, GL_BUFFER_DATA_SIZE});
      singles_.push_back(
          {.kind = kind,
           .name = element_name(name_of(program_, interface, i)),
           .binding = static_cast<std::uint32_t>(std::max(binding, 0)),
           // Drivers pad the size of a storage block to a vec4, which its buffer need not have.
           .bytes = kind == Kind::uniform_buffer ? static_cast<std::uint64_t>(std::max(bytes, 0)) : 0,
           .index = i});
    }
  }

  Single* block(Kind kind, GLint index) {
    for (Single& single : singles_)
      if (single.kind == kind && single.index == static_cast<GLuint>(index)) return &single;
    return nullptr;
  }

  /// The size of a variable of a block, from its own beginning to its end.
  static std::uint64_t size_in_block(const NumberType& type, GLint array, GLint array_stride, GLint matrix_stride,
                                     GLint row_major) {
    std::uint64_t size = type.bytes();
    if (type.columns > 1 && matrix_stride > 0)
      size = std::uint64_t{row_major != 0 ? type.rows : type.columns} * static_cast<std::uint64_t>(matrix_stride);
    if (array > 1 && array_stride > 0)
      size = static_cast<std::uint64_t>(array) * static_cast<std::uint64_t>(array_stride);
    return size;
  }

  /// The end of the last variable of each storage block. Arrays of unknown length count as empty.
  void read_storage_sizes() {
    const auto count = static_cast<GLuint>(count_of(program_, GL_BUFFER_VARIABLE));
    for (GLuint i = 0; i < count; ++i) {
      const auto [of, type, array, offset, array_stride, matrix_stride, row_major, top, top_stride] =
          properties(program_, GL_BUFFER_VARIABLE, i,
                     {GL_BLOCK_INDEX, GL_TYPE, GL_ARRAY_SIZE, GL_OFFSET, GL_ARRAY_STRIDE, GL_MATRIX_STRIDE,
                      GL_IS_ROW_MAJOR, GL_TOP_LEVEL_ARRAY_SIZE, GL_TOP_LEVEL_ARRAY_STRIDE});
      Single* const single = block(Kind::storage_buffer, of);
      if (single == nullptr || array == 0 || top == 0 || offset < 0) continue;
      const NumberType* const number = number_type(static_cast<GLenum>(type));
      std::uint64_t end = static_cast<std::uint64_t>(offset);
      if (number != nullptr) {
        end += size_in_block(*number, array, array_stride, matrix_stride, row_major);
      } else {
        // Of a type of an extension, such as float16_t, only the stride of an array is known.
        end += array > 1 && array_stride > 0
                   ? static_cast<std::uint64_t>(array) * static_cast<std::uint64_t>(array_stride)
                   : 1;
      }
      if (top > 1 && top_stride > 0)
        end += static_cast<std::uint64_t>(top - 1) * static_cast<std::uint64_t>(top_stride);
      single->bytes = std::max(single->bytes, end);
    }
    // Drivers list the variables of an array of blocks only once.
    for (Single& single : singles_)
      if (single.kind == Kind::storage_buffer && single.name.element.value_or(0) != 0)
        for (const Single& first : singles_)
          if (first.kind == single.kind && first.name.array == single.name.array && first.name.element == 0U)
            single.bytes = std::max(single.bytes, first.bytes);
  }

  void read_counters() {
    const auto count = static_cast<GLuint>(count_of(program_, GL_ATOMIC_COUNTER_BUFFER));
    for (GLuint i = 0; i < count; ++i) {
      const auto [binding, bytes] =
          properties(program_, GL_ATOMIC_COUNTER_BUFFER, i, {GL_BUFFER_BINDING, GL_BUFFER_DATA_SIZE});
      singles_.push_back({.kind = Kind::atomic_counters,
                          .binding = static_cast<std::uint32_t>(std::max(binding, 0)),
                          .unit = static_cast<std::uint32_t>(std::max(binding, 0)),
                          .bytes = static_cast<std::uint64_t>(std::max(bytes, 0)),
                          .index = i});
    }
  }

  /// Uniform block 0, if it is one block.
  void choose_parameters() {
    const auto is_zero = [](const Single& single) {
      return single.kind == Kind::uniform_buffer && single.binding == 0;
    };
    const auto found = std::ranges::find_if(singles_, is_zero);
    if (found == singles_.end() || found->name.element || std::ranges::count_if(singles_, is_zero) > 1) return;
    made_.takes.parameter_bytes = static_cast<std::uint32_t>(found->bytes);
    made_.takes.parameters = {
        .kind = Kind::uniform_buffer, .name = std::move(found->name.array), .bytes = found->bytes};
    parameters_ = static_cast<GLint>(found->index);
    singles_.erase(found);
  }

  void read_uniforms() {
    const auto count = static_cast<GLuint>(count_of(program_, GL_UNIFORM));
    bool knows_members = true;
    for (GLuint i = 0; i < count; ++i) {
      const auto [type, of, counters, location, array, offset, array_stride, matrix_stride, row_major] =
          properties(program_, GL_UNIFORM, i,
                     {GL_TYPE, GL_BLOCK_INDEX, GL_ATOMIC_COUNTER_BUFFER_INDEX, GL_LOCATION, GL_ARRAY_SIZE,
                      GL_OFFSET, GL_ARRAY_STRIDE, GL_MATRIX_STRIDE, GL_IS_ROW_MAJOR});
      const std::string full_name = name_of(program_, GL_UNIFORM, i);
      const bool is_array = full_name.ends_with("[0]");
      const std::string name = is_array ? full_name.substr(0, full_name.size() - 3) : full_name;
      const NumberType* const number = number_type(static_cast<GLenum>(type));
      if (of >= 0) {
        if (of != parameters_) continue;
        if (number == nullptr || name.empty()) {
          knows_members = false;
          continue;
        }
        made_.takes.members.push_back({.name = member_name(name),
                                       .offset = static_cast<std::uint32_t>(std::max(offset, 0)),
                                       .bytes = static_cast<std::uint32_t>(
                                           size_in_block(*number, array, array_stride, matrix_stride, row_major))});
      } else if (counters >= 0) {
        name_counters(counters, name);
      } else if (const auto kind = opaque_kind(static_cast<GLenum>(type))) {
        read_units(*kind, name, is_array, static_cast<GLenum>(type), location, array);
      } else {
        read_plain(name, is_array, static_cast<GLenum>(type), number, location, array);
      }
    }
    for (const backend::GlslMember& member : made_.takes.members)
      knows_members = knows_members && member.offset + member.bytes <= made_.takes.parameter_bytes;
    // Members that are unknown are given as one value.
    if (!knows_members) made_.takes.members.clear();
    std::ranges::sort(made_.takes.members, {}, &backend::GlslMember::offset);
  }

  /// Members of a block with an instance name are called "Block.member".
  std::string member_name(const std::string& name) const {
    const std::string prefix = made_.takes.parameters.name + '.';
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }

  /// A buffer of counters has no name of its own, so it has that of a counter.
  void name_counters(GLint index, const std::string& name) {
    Single* const counters = block(Kind::atomic_counters, index);
    if (counters != nullptr && counters->name.array.empty()) counters->name.array = name;
  }

  void read_units(Kind kind, const std::string& name, bool is_array, GLenum type, GLint location, GLint array) {
    for (GLint element = 0; element < std::max(array, 1); ++element) {
      GLint unit = 0;
      glGetUniformiv(program_, location + element, &unit);
      ElementName element_of{name};
      if (is_array) element_of.element = static_cast<std::uint32_t>(element);
      singles_.push_back({.kind = kind,
                          .name = std::move(element_of),
                          .binding = static_cast<std::uint32_t>(std::max(unit, 0)),
                          .type = type,
                          .location = location + element});
    }
  }

  void read_plain(const std::string& name, bool is_array, GLenum type, const NumberType* number, GLint location,
                  GLint array) {
    if (name.empty()) {
      made_.problem = fmt::format(
          "the driver does not report the name of the uniform at location {}; use a uniform block instead",
          location);
      return;
    }
    if (number == nullptr || location < 0) {
      made_.problem = fmt::format(
          "the uniform {} has a type that Kiln cannot set ({:#x}); use a uniform block instead", name, type);
      return;
    }
    const auto count = static_cast<std::uint32_t>(std::max(array, 1));
    made_.takes.uniforms.push_back({.name = name,
                                    .offset = static_cast<std::uint32_t>(location),
                                    .bytes = count * number->bytes(),
                                    .element_bytes = is_array ? number->bytes() : 0});
    made_.uniforms.push_back({type, location, static_cast<GLsizei>(count)});
  }

  /// Gives every resource a unit of its own. Without layout(binding), all resources of a kind have binding 0, and
  /// applications set their units. One argument for a binding goes to all resources there; see assign().
  void choose_units() {
    for (const Kind kind : {Kind::storage_buffer, Kind::uniform_buffer, Kind::image, Kind::texture}) {
      std::vector<std::uint32_t> used;
      if (kind == Kind::uniform_buffer && parameters_ >= 0) used.push_back(0);
      std::vector<Single*> moved;
      for (Single& single : singles_) {
        if (single.kind != kind) continue;
        single.unit = single.binding;
        if (std::ranges::find(used, single.binding) == used.end())
          used.push_back(single.binding);
        else
          moved.push_back(&single);
      }
      std::uint32_t next = 0;
      for (Single* const single : moved) {
        while (std::ranges::find(used, next) != used.end()) ++next;
        single->unit = next++;
        if (kind == Kind::storage_buffer || kind == Kind::uniform_buffer)
          made_.block_units.push_back(
              {kind == Kind::storage_buffer ? GLenum{GL_SHADER_STORAGE_BLOCK} : GLenum{GL_UNIFORM_BLOCK},
               single->index, single->unit});
      }
      if (!moved.empty() && next > static_cast<std::uint32_t>(most_units(kind)))
        made_.problem =
            fmt::format("it has more than {} resources of the kind {}", most_units(kind), backend::to_string(kind));
    }
    for (const Single& single : singles_)
      if (single.location >= 0) made_.units.push_back({single.location, static_cast<GLint>(single.unit)});
  }

  /// Makes a resource of each array whose elements have consecutive bindings, and of each other element.
  void merge_arrays() {
    std::ranges::stable_sort(singles_, [](const Single& a, const Single& b) {
      return std::tie(a.kind, a.binding, a.unit) < std::tie(b.kind, b.binding, b.unit);
    });
    std::vector<bool> merged(singles_.size());
    for (std::size_t i = 0; i < singles_.size(); ++i) {
      if (merged[i]) continue;
      const Single& first = singles_[i];
      GlslResource made{
          .kind = first.kind, .place = {.binding = first.binding}, .name = first.name.array, .bytes = first.bytes};
      if (first.name.element.value_or(0) != 0) {
        made.name += fmt::format("[{}]", *first.name.element);
      } else if (first.name.element) {
        for (std::size_t j = i + 1; j < singles_.size(); ++j) {
          const Single& next = singles_[j];
          if (next.kind != first.kind || next.name.array != first.name.array || next.name.element != made.count ||
              next.binding != first.binding + made.count || next.unit != first.unit + made.count)
            continue;
          merged[j] = true;
          ++made.count;
        }
      }
      made_.takes.resources.push_back(std::move(made));
      made_.ports.push_back({first.unit, first.type});
    }
  }

  const GLuint program_;
  ProgramInterface made_;
  std::vector<Single> singles_;
  /// The index of uniform block 0.
  GLint parameters_ = -1;
};

}  // namespace

ProgramInterface read_interface(GLuint program) { return Reader(program).read(); }

void set_units(GLuint program, const ProgramInterface& interface) {
  for (const auto& [location, unit] : interface.units) glProgramUniform1i(program, location, unit);
  for (const auto& [kind, index, unit] : interface.block_units) {
    if (kind == GL_SHADER_STORAGE_BLOCK)
      glShaderStorageBlockBinding(program, index, unit);
    else
      glUniformBlockBinding(program, index, unit);
  }
}

void set_uniform(GLuint program, const PlainUniform& uniform, std::span<const std::byte> value) {
  if (const NumberType* const type = number_type(uniform.type))
    type->set(program, uniform.location, uniform.count, value.data());
}

TextureTarget target_of(GLenum type) noexcept {
  for (const OpaqueTypes& types : opaque_types)
    if (std::ranges::find(types.samplers, type) != types.samplers.end() ||
        std::ranges::find(types.images, type) != types.images.end())
      return types.target;
  return {};
}

TextureTarget find_target(GLenum target) noexcept {
  for (const OpaqueTypes& types : opaque_types)
    if (types.target.target == target) return types.target;
  return {};
}

}  // namespace kiln::opengl
