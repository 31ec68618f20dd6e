#!/usr/bin/env python3
"""Golden texts of chat templates, for tests/unit/worker/jinja_golden_test.cc.

    python3 -m venv venv && venv/bin/pip install --require-hashes -r tests/golden/requirements.txt
    venv/bin/python tests/golden/chat_templates/make_chat_templates.py

writes templates.json and expressions.json beside this file. Templates are rendered by transformers' own environment; they are
ours, in the manner of well-known families'. Expressions are drawn at random from a fixed seed; what
Jinja refuses stands there as null.
"""
import copy
import json
import os
import random
import re

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))

TEMPLATES = {
    # System first, a date, tools as JSON; contents trimmed.
    "tools_and_date": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Where: a shell\\n" }}
{%- endif %}
{{- "Now it is " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- 'What there is:\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'shell' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>shell<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    # Roles must alternate, system inside the first turn, on one line.
    "alternating": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for "
    "message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('the roles "
    "must take turns') }}{% endif %}{% if loop.index0 == 0 and system_message != false "
    "%}{% set content = '<<RULES>>\\n' + system_message + '\\n<</RULES>>\\n\\n' + message['content'] %}{% else %}{% set content = "
    "message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' "
    "}}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    # Searches for the last user turn, counts with a namespace, checks tools' ids.
    "last_user_turn": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("the roles must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[CAN_DO] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/CAN_DO]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" and message.tool_calls is not defined %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[CAME_OUT] {"content": ' + message.content|string + "}" }}
    {%- else %}
        {{- "[DO] " + message.tool_calls|tojson }}
    {%- endif %}
{%- endfor %}
""",
    # Thinking parts are cut from earlier answers; loops from the end; methods of strings.
    "thinking": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "You can use:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, asked_at=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.asked_at = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.asked_at %}
            {%- if loop.last or (not loop.last and thoughts) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    # Lines without minus signs: what trim_blocks and lstrip_blocks are for.
    "lines": """{% for message in messages %}
    {% if message.role == 'system' %}
System: {{ message.content }}
    {% elif loop.previtem is defined and loop.previtem.role == message.role %}
  (again) {{ message.content | replace('\\n', ' ') }}
    {% else %}
{{ message.role | capitalize }}{# a comment #}: {{ message.content | upper if loop.last else message.content }}
    {% endif %}
    {#- another #}

  {%+ if loop.first +%}
  first
  {% endif %}
{% else %}
nobody said anything
{% endfor %}
{% raw %}{{ this }} {% stays %}{% endraw %}

{% set closing %}
  Assistant{{ ':' }}
{% endset %}
{{ closing | trim }}{{ '' -}}
""",
    # Macros with defaults that call each other, filter blocks, loop controls, the generation block.
    "macros": """{% macro turn(role, content='', mark='>') -%}
{{ mark }}{{ role }}|{{ content | length }}|{{ clip(content) }}
{%- endmacro -%}
{% macro clip(text, most=12) %}{{ text[:most] ~ ('...' if text | length > most) }}{% endmacro -%}
{% for message in messages %}
{% if loop.index > 4 %}{% break %}{% endif %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{{ turn(message.role, content=message.content, mark='=' * loop.index) }}
{% endfor %}
{% filter upper %}done {{ messages | map(attribute='role') | unique | join(', ') }}{% endfilter %}
{% with a = 1, b = messages | length %}{{ a + b }}{% endwith %}
{% generation %}{{ messages[-1].content }}{% endgeneration %}
{% set first, second = 'x', ['y'] %}{{ first }}{{ second }}
""",
    # JSON schemas of tools as TypeScript, as some families print them.
    "schemas": """{%- macro kind(spec) -%}
  {%- if spec.type == "array" -%}
    {%- if spec['items'] -%}{{ kind(spec['items']) }}[]{%- else -%}any[]{%- endif -%}
  {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type[0] == "object" -%}
    object
  {%- elif spec.type == "string" -%}
    {%- if spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}{%- else -%}string{%- endif -%}
  {%- elif spec.type in ["integer", "number"] -%}number
  {%- elif spec.type == "object" -%}
    {%- if spec.properties -%}
      {{- "{\\n" }}
      {%- for name, inner in spec.properties.items() -%}
        {{ "  " }}{{ name }}{{ "?" if name not in (spec.required or []) }}: {{ kind(inner) }}{{ "," if not loop.last }}{{ "\\n" }}
      {%- endfor -%}
      }
    {%- else -%}object{%- endif -%}
  {%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}
{%- set f = tool.function -%}
// {{ f.description | default('no description', true) }}
type {{ f.name }} = (_: {{ kind(f.parameters) }}) => any;
{{ f.parameters | tojson(indent=2) | indent(4) }}
{{ f.parameters.properties | dictsort | map('first') | list }}
{% endfor -%}
{{ messages | map(attribute='content') | select('string') | map('trim') | join(' / ') }}
""",
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city, \"now\" or <later>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name – with ümlauts"},
                    "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
                    "Days": {"type": "array", "items": {"type": "integer"}},
                    "options": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "Days": [1, 2.5, None, True]}}}
CHATS = [
    [message("user", "hi")],
    [message("system", "  Be brief.\n"), message("user", "What is 1 + 1?\n\n"), message("assistant", " 2 "), message("user", "and 2 + 2?")],
    [message("user", "<|eot_id|> [INST] </s> <|im_end|>"), message("assistant", "<think>\nhm\n</think>\n\nno"), message("user", "日本語 🙂 ﬁn"), ],
    [message("user", "a"), message("user", "b")],
    [message("system", "s")],
    [message("user", "weather?"), message("assistant", None, tool_calls=[CALL]), message("tool", "{\"t\": 21}"), message("tool", "ok"), message("assistant", "warm"), message("user", "thanks")],
    [message("user", ""), message("assistant", "\n\n"), message("user", "line\r\nbreaks\there \\ 'q' \"d\"")],
    [],
]
CONTEXTS = [
    {"tools": None, "add_generation_prompt": True},
    {"tools": TOOLS, "add_generation_prompt": True},
    {"tools": None, "add_generation_prompt": False, "enable_thinking": False, "date_string": "1 May 2026"},
]


def rendered(source, variables):
    try:
        return _compile_jinja_template(source).render(documents=None, bos_token="<s>", eos_token="</s>", **variables)
    except Exception:  # whatever Jinja or Python refuse
        return None


def templates():
    cases = []
    for name, source in TEMPLATES.items():
        for chat in CHATS:
            for context in CONTEXTS:
                variables = {"messages": chat, **context}
                cases.append({"template": name, "variables": variables, "text": rendered(source, variables)})
    return cases


VARIABLES = {
    "n": 3, "z": 0, "neg": -7, "f": 2.5, "t": True, "none_value": None, "s": "Hello, Wörld", "e": "", "w": "  two words\t", "l": [3, 1, 2],
    "names": ["b", "A", "c", "a"], "d": {"k": "v", "n": 1, "items": [1]}, "dicts": [{"r": "u", "v": 2}, {"r": "a", "v": 1}, {"r": "u"}],
    "nested": {"a": {"b": ["x", {"c": None}]}},
}
STRINGS = ["'a'", "'o'", "''", "'A b'", "', '", "\"it's\"", "'\\n'", "'ß'", "'12'", "' 3.7 '", "'ab' 'cd'"]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "0.5", "1e3", "7"]
NAMES = list(VARIABLES) + ["missing"]
FILTERS = ["trim", "upper", "lower", "length", "capitalize", "title", "list", "first", "last", "reverse|list", "sort", "unique|list",
           "string", "int", "float", "abs", "round", "round(1)", "tojson", "tojson(indent=2)", "default('d')", "default('d', true)", "join",
           "join(', ')", "join('-', attribute='r')", "map('upper')|list", "map(attribute='v')|list", "map(attribute='v', default=0)|list",
           "selectattr('v')|list", "selectattr('v', 'defined')|list", "selectattr('r', 'equalto', 'u')|list", "rejectattr('r', 'eq', 'u')|list",
           "select('odd')|list", "reject('odd')|list", "select|list", "dictsort", "items|list", "replace('o', '0')", "replace('l', 'L', 1)", "sum",
           "max", "min", "e", "indent(2)", "int(5)", "sort(reverse=true)", "sort(attribute='v')", "sum(attribute='v')", "count", "safe"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "odd", "even",
         "true", "false", "divisibleby(3)", "divisibleby 2", "eq(3)", "ne 'a'", "in [1, 2, 3]", "lower", "upper", "gt(1)", "lt 2", "callable"]
METHODS = ["strip()", "lstrip()", "rstrip('d')", "split()", "split(',')", "split('o', 1)", "rsplit('o', 1)", "upper()", "lower()", "title()",
           "capitalize()", "startswith('H')", "endswith('d')", "startswith(('a', 'H'))", "find('o')", "rfind('o')", "count('l')",
           "replace('l', 'L')", "splitlines()", "isdigit()", "isalpha()", "isupper()", "join(['x', 'y'])", "items()|list", "keys()|list", "values()|list",
           "get('k')", "get('none', 4)", "removeprefix('He')", "partition(',')", "zfill(15)", "index('o')"]


def expression(rng, depth):
    if depth == 0:
        return rng.choice([rng.choice(NAMES), rng.choice(NAMES), rng.choice(STRINGS), rng.choice(NUMBERS), "true", "false", "none"])
    inner = lambda: expression(rng, rng.randint(0, depth - 1))
    kind = rng.randint(0, 15)
    if kind <= 3:
        return f"{inner()}|{rng.choice(FILTERS)}" if rng.random() < 0.5 else f"({inner()})|{rng.choice(FILTERS)}"
    if kind <= 5:
        return f"({inner()}).{rng.choice(METHODS)}"
    if kind == 6:
        return f"({inner()} is {'not ' if rng.random() < 0.3 else ''}{rng.choice(TESTS)})"
    if kind <= 8:
        return f"({inner()} {rng.choice(['+', '-', '*', '/', '//', '~', '~', '+'])} {inner()})"
    if kind == 9:
        return f"({inner()} {rng.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {inner()})"
    if kind == 10:
        return f"({inner()} {rng.choice(['and', 'or'])} {inner()})"
    if kind == 11:
        left, right = rng.choice(["n", "neg", "f", "7", "-2"]), rng.choice(NUMBERS + ["n", "neg", "f"])  # of strings it formats
        return rng.choice([f"(not {inner()})", f"-{inner()}", f"({left} % {right})", f"({left.lstrip('-')} ** {right})"])
    if kind == 12:
        return f"({inner()} if {inner()} else {inner()})" if rng.random() < 0.7 else f"({inner()} if {inner()})"
    if kind == 13:
        return rng.choice([f"[{inner()}, {inner()}]", f"({inner()}, {inner()})", f"{{'k': {inner()}}}", "[]", "{}"])
    if kind == 14:
        at = rng.choice(["0", "-1", "1", "1:", ":2", "::-1", "1:3", "-2:", "::2", "'k'", "'a'", "5", "n"])
        # Of constants Jinja takes slices itself, by other rules than Python's.
        return f"({rng.choice(NAMES) if ':' in at else inner()})[{at}]"
    return f"({inner()}).{rng.choice(['k', 'a', 'b', 'missing', '0'])}"


def expressions():
    rng = random.Random(20261122)
    cases, seen = [], set()
    while len(cases) < 3000:
        source = "{{ " + expression(rng, rng.randint(1, 4)) + " }}"
        if source in seen:
            continue
        seen.add(source)
        refused = sum(case["text"] is None for case in cases)
        try:
            text = _compile_jinja_template(source).render(**copy.deepcopy(VARIABLES))  # indent changes a list
        except Exception:
            if refused >= 600:
                continue
            text = None
        # What Python alone has: addresses, views of dicts, integers beyond 64 bits, complex numbers, strings marked as HTML.
        if text is not None and re.search(r"<|dict_|method|\d{18}|j\)|e\+?\d\d\d|Undefined|Markup", text):
            continue
        cases.append({"source": source, "text": text})
    return cases


def main():
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
    with open(os.path.join(HERE, "templates.json"), "w", encoding="utf-8") as file:
        json.dump({"versions": versions, "templates": TEMPLATES, "cases": templates()}, file, ensure_ascii=False, indent=0)
        file.write("\n")
    with open(os.path.join(HERE, "expressions.json"), "w", encoding="utf-8") as file:
        json.dump({"versions": versions, "variables": VARIABLES, "cases": expressions()}, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
