/*
 * collation.h: how the plugin turns a character value into bytes that compare like the server's collation.
 */
#ifndef PBXT_PLUGIN_COLLATION_H
#define PBXT_PLUGIN_COLLATION_H

#include "plugin.h"

namespace pbxt {

enum class WeightForm : uint8_t {
  kSequence, /* the weights one after the other: one level */
  kLevels,   /* several levels, each in a form that ends by itself */
  kCode,     /* multi-byte characters by their code, others by the sort table (Big5) */
  kFixed     /* padded to fixed_length by the collation itself */
};

/* What the weights callback needs to know of one key part. Lives as long as the open table. */
struct PartWeights {
  CHARSET_INFO* collation;
  uint32_t max_chars;    /* the part's prefix length in characters; 0: the whole value */
  uint32_t fixed_length; /* kFixed: bytes */
  WeightForm form;
  bool pads;          /* PAD SPACE: compares as if followed by endless spaces */
  uint32_t pad_chars; /* CHAR(n) under NO PAD: values compare as n characters, spaces included; else 0 */
};

/* Chooses form and encoding for a part of `length` bytes and fills in the part's weight fields. */
void choose_weights(CHARSET_INFO* collation, uint32_t length, bool is_prefix, bool is_char,
                    PartWeights* weights, pbxt_key_part* part);

/* No value of a whole column of `length` bytes has longer weights; SIZE_MAX if no limit is known. */
size_t weights_max(const PartWeights& part, uint32_t length);

/* The engine's callback (pbxt_host.weights). */
size_t collation_weights(const void* part, const uint8_t* source, size_t length, uint8_t* target,
                         size_t capacity);

}  // namespace pbxt

#endif
