#include "shim.h"

#include "repeat-layers.h"

#include <algorithm>
#include <string_view>

int32_t rys_parse_spec(const char * spec, size_t len, llama_layer_block * out, size_t cap, size_t * n_out,
        size_t * err_pos) {
    try {
        const auto res = common_repeat_layers_parse(std::string_view(spec, len));
        std::copy_n(res.blocks.begin(), std::min(cap, res.blocks.size()), out);
        *n_out   = res.blocks.size();
        *err_pos = res.pos;
        return (int32_t) res.err;
    } catch (...) {
        return -1; // out of memory
    }
}
