// C ABI of the crate lockstep_text: tokenizers and chat templates. Every string is (pointer, size) in UTF-8, nothing is
// NUL-terminated; a panic inside is caught and comes back as LOCKSTEP_TEXT_INTERNAL. Objects may be used by many threads at once.
#ifndef LOCKSTEP_TEXT_H
#define LOCKSTEP_TEXT_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Borrowed bytes. data may be null if size is 0.
typedef struct {
  const uint8_t* data;
  size_t size;
} lockstep_text_view;

// Owned bytes: give back with lockstep_text_bytes_free.
typedef struct {
  uint8_t* data;
  size_t size;
} lockstep_text_bytes;

// Owned token ids: give back with lockstep_text_ids_free.
typedef struct {
  int32_t* data;
  size_t size;
} lockstep_text_ids;

// What a call returns. On anything but OK the outputs are untouched and `error` (never null) holds a sentence for a person.
typedef enum {
  LOCKSTEP_TEXT_OK = 0,
  LOCKSTEP_TEXT_CORRUPT = 1,      // a file contradicts itself or its format
  LOCKSTEP_TEXT_UNSUPPORTED = 2,  // well-formed, but this library cannot do it
  LOCKSTEP_TEXT_INVALID = 3,      // text or variables given are not valid
  LOCKSTEP_TEXT_RAISED = 4,       // the template called raise_exception: `error` is its own words
  LOCKSTEP_TEXT_RENDER = 5,       // the template failed on these variables
  LOCKSTEP_TEXT_LIMIT = 6,        // a bound on work, memory or output was reached
  LOCKSTEP_TEXT_ABSENT = 7,       // the file has no such thing
  LOCKSTEP_TEXT_INTERNAL = 8      // our own mistake
} lockstep_text_code;

void lockstep_text_bytes_free(lockstep_text_bytes bytes);
void lockstep_text_ids_free(lockstep_text_ids ids);

// ---- Tokenizer
typedef struct lockstep_tokenizer lockstep_tokenizer;

// What is known of every id, valid as long as the tokenizer. Token i adds bytes[offsets[i] .. offsets[i + 1]); flags[i] is 1 for a
// special added token. tokens is largest_id + 1.
typedef struct {
  const uint32_t* offsets;
  const uint8_t* bytes;
  const uint8_t* flags;
  size_t tokens;
  int strips_leading_space;
} lockstep_token_table;

// `tokenizer_json`: text of tokenizer.json; `config_json`: text of tokenizer_config.json, size 0 if there is none.
int lockstep_tokenizer_new(lockstep_text_view tokenizer_json, lockstep_text_view config_json, lockstep_tokenizer** out,
                           lockstep_text_bytes* error);
void lockstep_tokenizer_free(lockstep_tokenizer* tokenizer);
lockstep_token_table lockstep_tokenizer_table(const lockstep_tokenizer* tokenizer);
// Id of a token by its text in the file, -1 if there is none.
int64_t lockstep_tokenizer_id_of(const lockstep_tokenizer* tokenizer, lockstep_text_view token);
// Special token of the configuration by its key ("eos_token"); data is null if there is none. Valid as long as the tokenizer.
lockstep_text_view lockstep_tokenizer_named(const lockstep_tokenizer* tokenizer, lockstep_text_view key);
// Spellings of added tokens become those tokens; add_special_tokens runs the post-processor.
int lockstep_tokenizer_encode(const lockstep_tokenizer* tokenizer, lockstep_text_view text, int add_special_tokens, lockstep_text_ids* out,
                              lockstep_text_bytes* error);
// As encode without special tokens, but a spelling that holds U+FDD0 is ordinary text; the marks are removed.
int lockstep_tokenizer_encode_chat(const lockstep_tokenizer* tokenizer, lockstep_text_view text, lockstep_text_ids* out,
                                   lockstep_text_bytes* error);
// Text without U+FDD0, then with one after the first character of every spelling of an added token, and of a beginning of one at the
// text's end. keep_think leaves <think> and </think> alone.
int lockstep_tokenizer_mark_plain(const lockstep_tokenizer* tokenizer, lockstep_text_view text, int keep_think, lockstep_text_bytes* out,
                                  lockstep_text_bytes* error);

// ---- Chat template
typedef struct lockstep_template lockstep_template;

// Writes the time now in a strftime format to out (room for `capacity` bytes); returns the size, or 0 if it does not fit.
typedef size_t (*lockstep_strftime_now)(const uint8_t* format, size_t format_size, uint8_t* out, size_t capacity);

// chat_template of a JSON file (tokenizer_config.json, chat_template.json): a string, or a list of {name, template} with a default.
int lockstep_template_source(lockstep_text_view json, lockstep_text_bytes* out, lockstep_text_bytes* error);
// `name` stands in messages; the special tokens of `tokenizer` become variables. A template that does not parse is refused here.
int lockstep_template_new(const lockstep_tokenizer* tokenizer, lockstep_text_view name, lockstep_text_view source,
                          lockstep_strftime_now now, lockstep_template** out, lockstep_text_bytes* error);
void lockstep_template_free(lockstep_template* chat_template);
// `variables_json`: one JSON object.
int lockstep_template_render(const lockstep_template* chat_template, lockstep_text_view variables_json, lockstep_text_bytes* out,
                             lockstep_text_bytes* error);

#ifdef __cplusplus
}
#endif
#endif
