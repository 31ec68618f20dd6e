// Parsers of untrusted input, as fuzz targets. Each function takes any bytes and aborts if one of its conditions is violated.
// scripts/fuzz searches for such bytes; fuzz_test replays the small files of tests/fuzz/corpus that were found before.
#pragma once

#include <string_view>

namespace windlass::fuzz {

using Target = void (*)(std::string_view bytes);

void http_head(std::string_view bytes);           // a request's head, and Beast's parser behind our check
void completion_request(std::string_view bytes);  // as the gateway reads it
void event_stream(std::string_view bytes);        // a worker's response through the gateway, cut anywhere
void chat_request(std::string_view bytes);        // as the worker reads it
void chain_frames(std::string_view bytes);        // messages between the workers of a chain
void kv_frames(std::string_view bytes);           // messages between prefill and decode workers
void gguf_file(std::string_view bytes);           // a model file's fields, tokenizer and tensors
void metrics_page(std::string_view bytes);
void routing_table(std::string_view bytes);

}  // namespace windlass::fuzz
