/* SPDX-License-Identifier: Apache-2.0
 * Chat templates, rendered straight to ids. Control tokens of the template are pushed as ids; the
 * text between two of them is gathered and encoded in one piece, because BPE must see it as the
 * template's text would show it, and without control tokens, so that content cannot forge one. */
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

struct writer {
    const struct brim_tokenizer *tokenizer;
    struct brim_ids *ids;
    char *text; /* gathered since the last control token */
    size_t n_text, capacity;
    bool parse_special;
    brim_error *err;
};

static struct brim_str str(const char *text)
{
    return (struct brim_str){text, strlen(text)};
}

static bool equals(struct brim_str s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

/* Position of the first (from the left or the right) `needle` in s, or -1. */
static ptrdiff_t find(struct brim_str s, const char *needle, bool last)
{
    size_t n = strlen(needle);
    ptrdiff_t found = -1;
    for (size_t at = 0; at + n <= s.len; at++) {
        if (memcmp(s.data + at, needle, n) != 0) continue;
        found = (ptrdiff_t)at;
        if (!last) break;
        at += n - 1;
    }
    return found;
}

static struct brim_str strip_newlines(struct brim_str s, bool left, bool right)
{
    while (left && s.len && s.data[0] == '\n') s.data++, s.len--;
    while (right && s.len && s.data[s.len - 1] == '\n') s.len--;
    return s;
}

static brim_status put(struct writer *w, struct brim_str s)
{
    if (s.len > w->capacity - w->n_text) {
        size_t capacity = (w->n_text + s.len) * 2 + 256;
        char *grown = brim_realloc(w->text, w->n_text, capacity);
        BRIM_REQUIRE(w->err, grown, BRIM_E_NO_MEMORY, "no memory for a conversation");
        w->text = grown;
        w->capacity = capacity;
    }
    if (s.len) memcpy(w->text + w->n_text, s.data, s.len);
    w->n_text += s.len;
    return BRIM_OK;
}

static brim_status flush(struct writer *w)
{
    size_t len = w->n_text;
    w->n_text = 0;
    return brim_tokenizer_encode(w->tokenizer, w->text, len, w->parse_special, w->ids, w->err);
}

static brim_status control(struct writer *w, const char *text)
{
    int32_t id = brim_tokenizer_added_id(w->tokenizer, text);
    BRIM_REQUIRE(w->err, id >= 0, BRIM_E_MISSING,
                 "the chat template needs the token %s, which the vocabulary does not have", text);
    BRIM_TRY(flush(w));
    return brim_ids_push(w->ids, id, w->err);
}

/* <|im_start|>role\n */
static brim_status open_chatml(struct writer *w, struct brim_str role)
{
    BRIM_TRY(control(w, "<|im_start|>"));
    BRIM_TRY(put(w, role));
    return put(w, str("\n"));
}

static brim_status close_chatml(struct writer *w)
{
    BRIM_TRY(control(w, "<|im_end|>"));
    return put(w, str("\n"));
}

static brim_status chatml_message(struct writer *w, struct brim_str role, struct brim_str content)
{
    BRIM_TRY(open_chatml(w, role));
    BRIM_TRY(put(w, content));
    return close_chatml(w);
}

/* ChatML, but for the plain form with a system message when the conversation has none. */
static brim_status render_chatml(struct writer *w, const struct brim_chat_options *options,
                                 const struct brim_chat_message *messages, size_t n_message)
{
    const char *system =
        options->family == BRIM_CHAT_QWEN2
            ? "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
            : "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    if (options->family != BRIM_CHAT_CHATML && n_message && !equals(messages[0].role, "system"))
        BRIM_TRY(chatml_message(w, str("system"), str(system)));
    for (size_t i = 0; i < n_message; i++)
        BRIM_TRY(chatml_message(w, messages[i].role, messages[i].content));
    return options->add_generation_prompt ? open_chatml(w, str("assistant")) : BRIM_OK;
}

static bool is_tool_response(struct brim_str content)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    return content.len >= sizeof begin - 1 && !memcmp(content.data, begin, sizeof begin - 1) &&
           content.len >= sizeof end - 1 &&
           !memcmp(content.data + content.len - (sizeof end - 1), end, sizeof end - 1);
}

/* An answer is split into thinking and content at </think>. Thinking is shown only after the last
 * question, where it belongs to the turn still open; earlier it is removed. */
static brim_status qwen3_answer(struct writer *w, const struct brim_chat_options *options,
                                const struct brim_chat_message *message, bool after_query,
                                bool last)
{
    struct brim_str content = message->content, thinking = {"", 0};
    ptrdiff_t first = find(content, "</think>", false);
    if (first >= 0) {
        thinking = strip_newlines((struct brim_str){content.data, (size_t)first}, false, true);
        ptrdiff_t open = find(thinking, "<think>", true);
        if (open >= 0) {
            size_t skip = (size_t)open + strlen("<think>");
            thinking = (struct brim_str){thinking.data + skip, thinking.len - skip};
        }
        thinking = strip_newlines(thinking, true, true);
        size_t skip = (size_t)find(content, "</think>", true) + strlen("</think>");
        content = (struct brim_str){content.data + skip, content.len - skip};
        content = strip_newlines(content, true, false);
    }
    BRIM_TRY(open_chatml(w, str("assistant")));
    if (after_query && (last || thinking.len)) {
        BRIM_TRY(put(w, str("<think>\n")));
        BRIM_TRY(put(w, thinking));
        BRIM_TRY(put(w, str("\n</think>\n\n")));
        content = strip_newlines(content, true, false);
    } else if (options->stable_history && !options->enable_thinking) {
        BRIM_TRY(put(w, str("<think>\n\n</think>\n\n")));
    }
    BRIM_TRY(put(w, content));
    return close_chatml(w);
}

static brim_status render_qwen3(struct writer *w, const struct brim_chat_options *options,
                                const struct brim_chat_message *messages, size_t n_message)
{
    size_t last_query = n_message ? n_message - 1 : 0;
    for (size_t i = n_message; i-- > 0;) {
        if (!equals(messages[i].role, "user") || is_tool_response(messages[i].content)) continue;
        last_query = i;
        break;
    }
    for (size_t i = 0; i < n_message; i++) {
        if (equals(messages[i].role, "assistant"))
            BRIM_TRY(qwen3_answer(w, options, &messages[i], i > last_query, i + 1 == n_message));
        else
            BRIM_TRY(chatml_message(w, messages[i].role, messages[i].content));
    }
    if (!options->add_generation_prompt) return BRIM_OK;
    BRIM_TRY(open_chatml(w, str("assistant")));
    return options->enable_thinking ? BRIM_OK : put(w, str("<think>\n\n</think>\n\n"));
}

/* What Python's str.strip removes, which the template's `trim` is. */
static bool is_python_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static struct brim_str trim(struct brim_str s)
{
    int used;
    while (s.len && brim_utf8_step((const uint8_t *)s.data, s.len, &used) == BRIM_UTF8_VALID &&
           is_python_space(brim_utf8_decode((const uint8_t *)s.data, &used))) {
        s.data += used;
        s.len -= (size_t)used;
    }
    while (s.len) {
        size_t begin = s.len - 1;
        while (begin && ((uint8_t)s.data[begin] & 0xC0) == 0x80 && s.len - begin < 4) begin--;
        const uint8_t *at = (const uint8_t *)s.data + begin;
        if (brim_utf8_step(at, s.len - begin, &used) != BRIM_UTF8_VALID ||
            (size_t)used != s.len - begin || !is_python_space(brim_utf8_decode(at, &used)))
            break;
        s.len = begin;
    }
    return s;
}

static brim_status llama3_header(struct writer *w, struct brim_str role)
{
    BRIM_TRY(control(w, "<|start_header_id|>"));
    BRIM_TRY(put(w, role));
    BRIM_TRY(control(w, "<|end_header_id|>"));
    return put(w, str("\n\n"));
}

static brim_status render_llama3(struct writer *w, const struct brim_chat_options *options,
                                 const struct brim_chat_message *messages, size_t n_message)
{
    size_t first = 0;
    bool dated = options->family == BRIM_CHAT_LLAMA31;
    if (n_message || dated) BRIM_TRY(control(w, "<|begin_of_text|>"));
    if (dated) {
        BRIM_TRY(llama3_header(w, str("system")));
        BRIM_TRY(put(w, str("Cutting Knowledge Date: December 2023\nToday Date: ")));
        BRIM_TRY(put(w, str(options->date ? options->date : "26 Jul 2024")));
        BRIM_TRY(put(w, str("\n\n")));
        if (n_message && equals(messages[0].role, "system")) {
            BRIM_TRY(put(w, trim(messages[0].content)));
            first = 1;
        }
        BRIM_TRY(control(w, "<|eot_id|>"));
    }
    for (size_t i = first; i < n_message; i++) {
        BRIM_TRY(llama3_header(w, messages[i].role));
        BRIM_TRY(put(w, trim(messages[i].content)));
        BRIM_TRY(control(w, "<|eot_id|>"));
    }
    return options->add_generation_prompt ? llama3_header(w, str("assistant")) : BRIM_OK;
}

const char *brim_chat_family_name(enum brim_chat_family family)
{
    switch (family) {
    case BRIM_CHAT_SMOLLM2:
        return "smollm2";
    case BRIM_CHAT_QWEN3:
        return "qwen3";
    case BRIM_CHAT_QWEN2:
        return "qwen2";
    case BRIM_CHAT_LLAMA3:
        return "llama3";
    case BRIM_CHAT_LLAMA31:
        return "llama31";
    case BRIM_CHAT_CHATML:
        return "chatml";
    }
    return "unknown";
}

/* What a family's template contains, and what tells its relatives that render otherwise: templates
 * that look alike and differ (QwQ, Qwen3.5, SmolLM3, functionary) must not be taken for it. */
struct signature {
    enum brim_chat_family family;
    const char *has[5], *lacks[4];
};
static const struct signature signatures[] = {
    {BRIM_CHAT_QWEN3,
     {"<|im_start|>", "enable_thinking is false", "<think>\\n\\n</think>\\n\\n",
      "ns.last_query_index", "multi_step_tool"},
     {"render_content", "bos_token", "raise_exception"}},
    {BRIM_CHAT_QWEN2,
     {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
     {"think>", "image"}},
    {BRIM_CHAT_SMOLLM2,
     {"<|im_start|>", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
     {"think", "macro"}},
    {BRIM_CHAT_LLAMA31,
     {"<|start_header_id|>", "Cutting Knowledge Date: December 2023",
      "Today Date: ", "tools_in_user_message"},
     {"image"}},
    {BRIM_CHAT_LLAMA3,
     {"<|start_header_id|>", "<|eot_id|>", "bos_token", "| trim"},
     {"Cutting Knowledge", "tool", "function", "raise_exception"}},
    {BRIM_CHAT_CHATML,
     {"<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>"},
     {"system", "think", "tool", "trim"}},
};

static bool matches(const struct signature *signature, struct brim_str t)
{
    for (int i = 0; i < 5 && signature->has[i]; i++)
        if (find(t, signature->has[i], false) < 0) return false;
    for (int i = 0; i < 4 && signature->lacks[i]; i++)
        if (find(t, signature->lacks[i], false) >= 0) return false;
    return true;
}

brim_status brim_chat_detect(const char *chat_template, size_t len, enum brim_chat_family *out,
                             brim_error *err)
{
    struct brim_str t = {chat_template, len};
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        if (!matches(&signatures[i], t)) continue;
        *out = signatures[i].family;
        return BRIM_OK;
    }
    return brim_fail(err, BRIM_E_UNSUPPORTED,
                     "the chat template is none of those brim implements (SmolLM2, Qwen2.5, "
                     "Qwen3, Llama 3, Llama 3.1, plain ChatML)");
}

brim_status brim_chat_render(const struct brim_tokenizer *tokenizer,
                             const struct brim_chat_options *options,
                             const struct brim_chat_message *messages, size_t n_message,
                             struct brim_ids *ids, brim_error *err)
{
    for (size_t i = 0; i < n_message; i++) {
        struct brim_str role = messages[i].role;
        BRIM_REQUIRE(err,
                     equals(role, "system") || equals(role, "user") || equals(role, "assistant"),
                     BRIM_E_ARGUMENT,
                     "message %zu has the role \"%.*s\"; system, user and assistant are known", i,
                     (int)(role.len < 64 ? role.len : 64), role.data);
    }
    size_t n_before = ids->n;
    struct writer w = {.tokenizer = tokenizer,
                       .ids = ids,
                       .parse_special = options->parse_user_specials,
                       .err = err};
    brim_status status;
    switch (options->family) {
    case BRIM_CHAT_QWEN3:
        status = render_qwen3(&w, options, messages, n_message);
        break;
    case BRIM_CHAT_LLAMA3:
    case BRIM_CHAT_LLAMA31:
        status = render_llama3(&w, options, messages, n_message);
        break;
    case BRIM_CHAT_CHATML:
    case BRIM_CHAT_SMOLLM2:
    case BRIM_CHAT_QWEN2:
        status = render_chatml(&w, options, messages, n_message);
        break;
    default:
        status = brim_fail(err, BRIM_E_ARGUMENT, "unknown chat family");
        break;
    }
    if (status == BRIM_OK) status = flush(&w);
    brim_free(w.text);
    if (status != BRIM_OK) ids->n = n_before;
    return status;
}
