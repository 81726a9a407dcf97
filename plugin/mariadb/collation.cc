/*
 * collation.cc: collation weights for key images.
 *
 * The engine compares keys byte by byte and knows no collation. For each character part it calls back for
 * weights, in one of these forms:
 *  - one level, PAD SPACE: the bare weights; the engine compares them as if padded with the weight of a
 * space;
 *  - one level, NO PAD: the bare weights; shorter is less;
 *  - several levels of a Unicode collation: made comparable here, level by level, so that "shorter is less"
 * holds;
 *  - anything else: what the server's own sort would use, at full length.
 * Weights are compared, never lengths or original bytes, because contractions and expansions break both.
 */
#include "collation.h"

#include <string.h>

#include <vector>

namespace pbxt {
namespace {

constexpr uint kAllWeights = 1U << 24;  // more than any key part can have
constexpr uint kSlack = 8;              // longest weight of one character that strnxfrm might have left out

size_t xfrm(const PartWeights& part, uint8_t* target, size_t capacity, const uint8_t* source, size_t length,
            uint flags) {
  return part.collation->coll->strnxfrm(part.collation, target, capacity, kAllWeights, source, length, flags);
}

/* No value of `length` bytes has longer weights: as many characters as the shortest encoding allows. */
size_t weights_bound(CHARSET_INFO* collation, size_t length) {
  size_t chars = length / collation->mbminlen + 1;
  return collation->coll->strnxfrmlen(collation, chars * collation->mbmaxlen) + kSlack;
}

/* Bytes of the value that count: at most the part's characters, without meaningless spaces. */
size_t significant_length(const PartWeights& part, const uint8_t* source, size_t length) {
  const char* begin = reinterpret_cast<const char*>(source);
  if (part.max_chars != 0) {
    size_t cut = my_ci_charpos(part.collation, begin, begin + length, part.max_chars);
    if (cut < length) length = cut;
  }
  return part.pads ? my_ci_lengthsp(part.collation, begin, length) : length;
}

size_t sequence_weights(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                        size_t capacity) {
  size_t got = xfrm(part, target, capacity, source, length, 0);
  if (got + kSlack <= capacity) return got;
  size_t bound = weights_bound(part.collation, length);
  return capacity >= bound ? got : bound;
}

size_t fixed_weights(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                     size_t capacity) {
  if (capacity < part.fixed_length) return part.fixed_length;
  uint flags = MY_STRXFRM_PAD_WITH_SPACE | MY_STRXFRM_PAD_TO_MAXLEN;
  size_t got = xfrm(part, target, part.fixed_length, source, length, flags);
  // Thai without padding (tis620_thai_nopad_ci) is compared as strings of C, which end with a zero.
  if (!part.pads) got = strnlen(reinterpret_cast<const char*>(target), got);
  if (got < part.fixed_length) memset(target + got, 0, part.fixed_length - got);
  return part.fixed_length;
}

/* Writes bytes while they fit and counts them all. */
class Writer {
 public:
  Writer(uint8_t* target, size_t capacity) : target_(target), capacity_(capacity), written_(0) {}
  void put(uint8_t byte) {
    if (written_ < capacity_) target_[written_] = byte;
    written_++;
  }
  void put_weight(uint16_t weight) {
    put(static_cast<uint8_t>(weight >> 8));
    put(static_cast<uint8_t>(weight));
  }
  size_t written() const { return written_; }

 private:
  uint8_t* target_;
  size_t capacity_;
  size_t written_;
};

uint16_t weight_at(const std::vector<uint8_t>& bytes, size_t index) {
  return static_cast<uint16_t>(bytes[2 * index] << 8 | bytes[2 * index + 1]);
}

/* The weights of one level such that byte order is the order of the sequences continued by endless spaces:
   each space is followed by a mark that says whether what comes after the spaces is less (1), only spaces (2)
   or more (3) than a space. */
void put_padded_level(const std::vector<uint8_t>& bytes, size_t count, uint16_t space, Writer* out) {
  while (count > 0 && weight_at(bytes, count - 1) == space) count--;
  for (size_t i = 0; i < count; i++) {
    uint16_t weight = weight_at(bytes, i);
    out->put_weight(weight);
    if (weight != space) continue;
    size_t next = i + 1;
    while (weight_at(bytes, next) == space) next++;  // ends: the last weight is no space
    out->put(weight_at(bytes, next) < space ? 1 : 3);
  }
  out->put_weight(space);
  out->put(2);
}

void put_level(const std::vector<uint8_t>& bytes, size_t count, Writer* out) {
  for (size_t i = 0; i < count; i++) out->put_weight(weight_at(bytes, i));
  out->put_weight(0);  // less than any weight
}

/* Bytes of one space in the collation's character set. */
size_t space_in(CHARSET_INFO* collation, uint8_t* target, size_t capacity) {
  int length = collation->cset->wc_mb(collation, ' ', target, target + capacity);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

/* NO PAD is a matter of the first level only: an accent more at the end of a value is no difference on the
 * other levels. */
size_t level_weights(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                     size_t capacity) noexcept {
  static thread_local std::vector<uint8_t> level;  // grows to the longest value of the thread, then stays
  level.resize(weights_bound(part.collation, length));
  uint8_t space[4];
  size_t space_length = space_in(part.collation, space, sizeof(space));
  Writer out(target, capacity);
  uint levels = part.collation->levels_for_order;
  for (uint number = 0; levels >> number; number++) {
    if (!(levels >> number & 1)) continue;
    uint flag = MY_STRXFRM_LEVEL1 << number;
    size_t count = xfrm(part, level.data(), level.size(), source, length, flag) / 2;
    if (!part.pads && number == 0) {
      put_level(level, count, &out);
      continue;
    }
    uint8_t weight[2] = {0, 0};
    xfrm(part, weight, sizeof(weight), space, space_length, flag);
    put_padded_level(level, count, static_cast<uint16_t>(weight[0] << 8 | weight[1]), &out);
  }
  return out.written();
}

/* Big5 compares by code but sorts, and so gives weights, by strokes; an index must follow the comparison. */
size_t code_weights(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                    size_t capacity) {
  Writer out(target, capacity);
  const uint8_t* end = source + length;
  while (source < end) {
    int bytes = my_ci_charlen(part.collation, source, end);
    if (bytes == 2) {
      out.put(*source++);
      out.put(*source++);
    } else {
      out.put(part.collation->sort_order[*source++]);
    }
  }
  return out.written();
}

size_t weights_of(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                  size_t capacity) {
  switch (part.form) {
    case WeightForm::kSequence:
      return sequence_weights(part, source, length, target, capacity);
    case WeightForm::kLevels:
      return level_weights(part, source, length, target, capacity);
    case WeightForm::kCode:
      return code_weights(part, source, length, target, capacity);
    case WeightForm::kFixed:
      return fixed_weights(part, source, length, target, capacity);
  }
  return 0;
}

/* The value continued with spaces to part.pad_chars characters. */
size_t padded_weights(const PartWeights& part, const uint8_t* source, size_t length, uint8_t* target,
                      size_t capacity) noexcept {
  static thread_local std::vector<uint8_t> padded;  // as the one above
  const char* begin = reinterpret_cast<const char*>(source);
  size_t chars = my_ci_numchars(part.collation, begin, begin + length);
  size_t missing = chars < part.pad_chars ? (part.pad_chars - chars) * part.collation->mbminlen : 0;
  padded.assign(source, source + length);
  padded.resize(length + missing);
  char* tail = reinterpret_cast<char*>(padded.data() + length);
  if (missing > 0) part.collation->cset->fill(part.collation, tail, missing, ' ');
  return weights_of(part, padded.data(), padded.size(), target, capacity);
}

bool is_big5(CHARSET_INFO* collation) {
  return strcmp(collation->cs_name.str, "big5") == 0 && !(collation->state & MY_CS_BINSORT);
}

/* Bare weights, compared by the engine. False if the collation's weights cannot be compared so. */
bool choose_sequence(CHARSET_INFO* collation, PartWeights* weights, pbxt_key_part* part) {
  // Levels, or characters that change places (Thai), of collations not built on Unicode weights.
  if (!collation->uca && (collation->levels_for_order > 1 || collation->state & MY_CS_NON1TO1)) return false;
  weights->form = collation->levels_for_order > 1 ? WeightForm::kLevels : WeightForm::kSequence;
  if (is_big5(collation)) weights->form = WeightForm::kCode;
  part->encoding = PBXT_KEY_HOST_NOPAD;
  if (!weights->pads || weights->form == WeightForm::kLevels) return true;
  uint8_t space[4], image[sizeof(part->pad_weight) + 1];
  size_t space_length = space_in(collation, space, sizeof(space));
  size_t pad = weights->form == WeightForm::kCode
                   ? code_weights(*weights, space, space_length, image, sizeof(image))
                   : xfrm(*weights, image, sizeof(image), space, space_length, 0);
  if (space_length == 0 || pad == 0 || pad > sizeof(part->pad_weight)) return false;
  part->encoding = PBXT_KEY_HOST_PAD;
  part->pad_len = static_cast<uint8_t>(pad);
  memcpy(part->pad_weight, image, pad);
  return true;
}

}  // namespace

void choose_weights(CHARSET_INFO* collation, uint32_t length, bool is_prefix, bool is_char,
                    PartWeights* weights, pbxt_key_part* part) {
  uint32_t chars = length / collation->mbmaxlen;
  *weights = PartWeights{};
  weights->collation = collation;
  weights->pads = !(collation->state & MY_CS_NOPAD);
  weights->pad_chars = is_char && !weights->pads ? chars : 0;
  weights->max_chars = is_prefix || weights->pad_chars != 0 ? chars : 0;
  if (choose_sequence(collation, weights, part)) return;
  weights->form = WeightForm::kFixed;
  weights->fixed_length = static_cast<uint32_t>(collation->coll->strnxfrmlen(collation, length));
  weights->max_chars = chars;  // fixed_length has room for no more
  part->encoding = PBXT_KEY_HOST_FIXED;
  part->weight_len = weights->fixed_length;
}

size_t weights_max(const PartWeights& part, uint32_t length) {
  if (part.form == WeightForm::kFixed) return part.fixed_length;
  if (part.form != WeightForm::kSequence) return SIZE_MAX;
  return part.collation->coll->strnxfrmlen(part.collation, length) + kSlack;
}

size_t collation_weights(const void* part_context, const uint8_t* source, size_t length, uint8_t* target,
                         size_t capacity) {
  const PartWeights& part = *static_cast<const PartWeights*>(part_context);
  length = significant_length(part, source, length);
  if (part.pad_chars != 0) return padded_weights(part, source, length, target, capacity);
  return weights_of(part, source, length, target, capacity);
}

}  // namespace pbxt
