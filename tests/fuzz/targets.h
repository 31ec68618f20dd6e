// What strangers' bytes go through. Each function takes any bytes, and ends the program where something does not hold of them.
// scripts/fuzz looks for such bytes; fuzz_test gives each the small files of tests/fuzz/corpus that were found before.
#pragma once

#include <string_view>

namespace windlass::fuzz {

using Target = void (*)(std::string_view bytes);

void http_head(std::string_view bytes);           // a request's head, and Beast's parser behind the check
void completion_request(std::string_view bytes);  // as the gateway reads it
void event_stream(std::string_view bytes);        // a worker's answer through the gateway, cut anywhere
void chat_request(std::string_view bytes);        // as the worker reads it
void chain_frames(std::string_view bytes);        // what workers of a chain say to each other
void kv_frames(std::string_view bytes);           // what prefill and decode workers say to each other
void gguf_file(std::string_view bytes);           // a model file's fields, tokenizer and tensors
void metrics_page(std::string_view bytes);
void routing_table(std::string_view bytes);

}  // namespace windlass::fuzz
