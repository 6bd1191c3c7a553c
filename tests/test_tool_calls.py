"""Tool calls as models write them, found by what chat templates render, and histories that templates rewrite."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mingce.base.errors import MingceError
from mingce.models.turns import Dialogue, TurnEnds
from mingce.roles.tool_formats import format_for
from mingce.tasks.tool_calls import FORMATS, Reading, Tags, ToolCall, find_format
from mingce.tasks.tools import Tool, tool_message

# In the manner of the models' own templates, shortened to what matters: how calls, results and thoughts are written.
_CHATML = """
{%- if tools %}<|im_start|>system
{{ how }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}
{% if m.role == 'tool' %}<tool_response>
{{ m.content }}
</tool_response>{% elif m.role == 'assistant' %}{{ assistant }}{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_CALLS = "{% for c in m.tool_calls or [] %}<tool_call>\n{{ call }}\n</tool_call>{% endfor %}"
_JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
_XML = (
    "<function={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n"
    "</parameter>{% endfor %}</function>"
)
_KEEPS = "{{ m.content }}" + _CALLS
_FORGETS = (
    "{% set after = messages[loop.index:] | selectattr('role', 'equalto', 'user') | list %}"
    "{{ m.content.split('</think>')[-1] if after else m.content }}" + _CALLS
)


def chatml(assistant: str, call: str, how: str = "") -> str:
    return _CHATML.replace("{{ assistant }}", assistant.replace("{{ call }}", call)).replace("{{ how }}", how)


TEMPLATES = {
    "hermes": chatml(_KEEPS, _JSON),
    "function_xml": chatml(_KEEPS, _XML),
    "llama3": """{% for m in messages %}<h>{{ 'ipython' if m.role == 'tool' else m.role }}</h>
{% if m.tool_calls %}{{ '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}"""
    """{{- m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>
{%- endfor %}{% if add_generation_prompt %}<h>assistant</h>
{% endif %}{% if tools %}{{ tools | tojson }}{% endif %}""",
    "xml_tools": chatml(
        "{% generation %}{{ m.content }}{% endgeneration %}", "", 'in <tool_call>\n{"name": <name>}'
    ).replace("tools %}", "xml_tools %}"),  # SmolLM3 as it came out
    "mistral": """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"""
    """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]"""
    """{% elif m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}{{ (c.function | tojson)[:-1] }}"""
    """{% if c.id | length != 9 %}{{ raise_exception('ids of 9 letters') }}{% endif %}, "id": "{{ c.id }}"}"""
    """{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}{% elif m.role == 'tool' %}"""
    """{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids of 9 letters') }}{% endif %}"""
    """[TOOL_RESULTS]{"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]"""
    """{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}""",
    "json": chatml(
        "{{ m.content }}{% for c in m.tool_calls or [] %}<|tool_call|>[{{ call }}]<|/tool_call|>{% endfor %}",
        '{"type": "function", "function": ' + _JSON + "}",
    ),  # Phi-4-mini
    "pythonic": chatml(
        "{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}({% for k, v in "
        "c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %})]{% endfor %}",
        "",
    ),  # Llama 3.2, without the quotes that the model writes
    "instructed": chatml("{{ m.content }}", "", 'Answer with <tool_call>\n{"name": <name>, "arguments": <args>}'),
}


def tokenizer_of(template: str) -> Any:
    """A token for every character, and one for the end of a turn."""
    end = "<|eot_id|>" if "eot_id" in template else "<|im_end|>"
    tokens = ["<pad>", end, *map(chr, range(32, 127)), "\n"]
    raw = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<pad>"))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=end, pad_token="<pad>")
    tokenizer.chat_template = template
    return tokenizer


def look_up(query: str, most: Annotated[int, "how many"] = 3, kind: Literal["a", "b"] = "a") -> list[str]:
    """Looks something up.

    More that models need not know.
    """
    if most < 0:
        raise ValueError("a negative number")
    return [query] * most


def test_a_function_is_told_by_its_signature() -> None:
    function = Tool(look_up, "look_up").schema["function"]
    assert function["description"] == "Looks something up."
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "most": {"type": "integer", "description": "how many"},
            "kind": {"type": "string", "enum": ["a", "b"]},
        },
        "required": ["query"],
    }


def test_a_tool_answers_with_its_result_or_its_error() -> None:
    tool = Tool(look_up, "look_up")
    assert tool.call({"query": "x", "most": 2}) == ('["x", "x"]', True)
    assert tool.call({"": "x"}) == ('["x", "x", "x"]', True)
    assert tool.call({"query": "x", "most": -1}) == ("Error: ValueError: a negative number", False)
    said, worked = tool.call({"qury": "x"})
    assert not worked
    assert "look_up: missing a required argument" in said

    async def later(query: str) -> str:
        return query.upper()

    assert Tool(later, "later").call({"query": "x"}) == ("X", True)


_NAMES = st.text("abcdefg_", min_size=1, max_size=8).filter(lambda name: name != "def")
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20).filter(
    lambda t: "<" not in t
)
_VALUES = st.one_of(
    st.integers(-99, 99), st.booleans(), _TEXT.map(lambda text: f"v{text.strip()}"), st.lists(st.integers(0, 9))
)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != Tags.name])
@given(tool=_NAMES, arguments=st.dictionaries(_NAMES, _VALUES, max_size=3))
def test_what_is_written_is_read(name: str, tool: str, arguments: dict[str, Any]) -> None:
    written, call = FORMATS[name], ToolCall(tool, arguments)
    reading = written.read(written.write(call), [tool])
    assert reading.calls == (call,)
    assert not reading.problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>{"), ("hermes", "<tool_call>{}</tool_call>"), ("hermes", "a</tool_call>"),
        ("hermes", '<tool_call>{"name": "x", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "x", "arguments": {}}</tool_call><tool_call>'),
        ("function_xml", "<tool_call>x</tool_call>"), ("glm", "<tool_call><arg_key>a</arg_key></tool_call>"),
        ("llama3", '{"name": "x", "parameters": {'), ("llama3", "<|python_tag|>"), ("mistral", "[TOOL_CALLS][{]"),
        ("hermes", f"<tool_call>{'[' * 9999}</tool_call>"), ("llama3", '{"name": ' + "[" * 9999),
        ("mistral", f"[TOOL_CALLS]{'[' * 9999}"),
        ("hermes", '<tool_call>{"name": "x", "arguments": "' + "[" * 9999 + '"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "x", "arguments": {"q": "\\ud800"}}</tool_call>'),
        ("llama3", '{"name": "\\ud800", "parameters": {}}'),
        ("pythonic", "[find(x=1"), ("pythonic", "[find(1)]"), ("pythonic", "[find(x=open('/etc/passwd'))]"),
        ("pythonic", "[find(x=b'1')]"), ("pythonic", "[find(x=1), 2]"), ("pythonic", f"[find(x={'[' * 9999})]"),
        ("tags", "<find>x"), ("tags", "x</find>"), ("tags", "</find><find>"),
    ],
)  # fmt: skip
def test_a_broken_call_is_a_problem(name: str, text: str) -> None:
    reading = FORMATS[name].read(text, ["find"])
    assert reading.problem
    assert not reading.calls


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", ["", "It is 4 < 5.", '{"answer": 42}', "see [1] and <b>this</b>"])
def test_words_are_no_call(name: str, text: str) -> None:
    reading = FORMATS[name].read(text, ["find"])
    assert not reading.calls
    assert not reading.problem


def test_tags_are_read_and_answered_in_place() -> None:
    tags = find_format("tags:information")
    assert tags.stops(["search"]) == ("</search>",)
    assert tags.read("<think>hm</think> <search> who? </search>", ["search"]).calls == (
        ToolCall("search", {"": "who?"}),
    )
    assert tags.told([tool_message("Ann")]) == "<information>Ann</information>"


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_format_is_that_of_the_template(name: str) -> None:
    expected = "hermes" if name in ("instructed", "xml_tools") else name
    assert format_for(tokenizer_of(TEMPLATES[name]), None, [Tool(look_up, "look_up").schema]).name == expected


def test_calls_between_marks_of_the_templates_own_are_learned() -> None:
    written = format_for(tokenizer_of(TEMPLATES["json"]), None, [Tool(look_up, "look_up").schema])
    call = ToolCall("find", {"x": 'a "b" ]'})
    assert written.write(call).startswith('<|tool_call|>[{"type": "function", "function": {"name": "find"')
    assert written.write(call).endswith("}}]<|/tool_call|>")
    assert written.read(f"so: {written.write(call)}", ["find"]).calls == (call,)
    for broken in (
        "<|tool_call|>",
        "<|tool_call|>[{]",
        '<|tool_call|>[{"name": "find"}]',
        "<|tool_call|>[7]<|/tool_call|>",
    ):
        assert written.read(broken, ["find"]).problem
    assert written.read('see {"name": "find"} and [1]', ["find"]) == Reading()


_PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (_PLAIN, "renders no tools"),
        ("{{ tools }}" + _PLAIN.replace("m.content", "m.tool_calls[0].id if m.tool_calls else m.content"), "not read"),
        (TEMPLATES["hermes"].replace("{{ m.content }}\n</tool_response>", "</tool_response>"), "leaves out what tools"),
    ],
)
def test_a_template_that_cannot_speak_of_tools_is_a_sentence(template: str, sentence: str) -> None:
    with pytest.raises(MingceError, match=sentence):
        format_for(tokenizer_of(template), None, [Tool(look_up, "look_up").schema])


def said(dialogue: Dialogue, text: str, tokenizer: Any) -> list[int]:
    """A turn of the policy that ends with the end token."""
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    dialogue.hear(ids, [tokenizer.eos_token_id])
    return ids


@pytest.mark.parametrize("name", ["hermes", "function_xml", "llama3", "pythonic"])
def test_observations_are_what_the_template_writes_behind_a_turn(name: str) -> None:
    tokenizer = tokenizer_of(TEMPLATES[name])
    written = FORMATS[name]
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [])
    ids = [*dialogue.prompt_ids]
    for turn in range(3):
        ids += said(dialogue, written.write(ToolCall("find", {"x": turn})), tokenizer)
        reply = dialogue.answer([tool_message(f"r{turn}")])
        assert reply.prompt is None
        assert reply.role == 2
        assert f"r{turn}" in tokenizer.decode(reply.ids)
        ids += reply.ids
    whole = tokenizer.apply_chat_template(dialogue.messages, add_generation_prompt=True, tokenize=False)
    assert dialogue.text == whole


def test_tools_are_told_under_the_name_that_the_template_reads() -> None:
    tokenizer = tokenizer_of(TEMPLATES["xml_tools"])
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [Tool(look_up, "look_up").schema])
    assert "Looks something up." in dialogue.text
    said(dialogue, "a", tokenizer)
    assert dialogue.answer([tool_message("r")]).prompt is None


def test_calls_are_numbered_for_a_template_that_asks_for_it() -> None:
    """Which writes the numbers into the history, so every answer begins a segment."""
    tokenizer, written = tokenizer_of(TEMPLATES["mistral"]), FORMATS["mistral"]
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [Tool(look_up, "look_up").schema])
    for turn in range(2):
        text = '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 1}}]'
        ids = said(dialogue, text, tokenizer)
        calls = written.read(tokenizer.decode(ids[:-1]), ["a", "b"]).calls
        dialogue.called = [{"name": one.name, "arguments": dict(one.arguments)} for one in calls]
        reply = dialogue.answer([tool_message(f"r{turn}"), tool_message(f"s{turn}")])
        assert reply.prompt is not None
        assert f'{{"content": s{turn}, "call_id": "call0000{2 * turn + 1}"}}' in tokenizer.decode(reply.prompt)
    last = said(dialogue, "Ann.", tokenizer)
    assert dialogue.drift(last) == -1
    said(dialogue, "[TOOL_CALLS][{", tokenizer)
    reply = dialogue.answer([tool_message("Error: no JSON")])
    assert "[INST]Error: no JSON[/INST]" in tokenizer.decode(reply.ids)
    first = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [Tool(look_up, "look_up").schema])
    said(first, "[TOOL_CALLS][{", tokenizer)  # a broken call at the very beginning, before any that was numbered
    assert "[INST]Error: no JSON[/INST]" in tokenizer.decode(first.answer([tool_message("Error: no JSON")]).ids)
    with pytest.raises(MingceError, match="ids of 9 letters"):
        Dialogue(tokenizer, [{"role": "user", "content": "who"}, tool_message("r")], [])


def test_a_long_answer_is_cut_to_its_limit() -> None:
    tokenizer = tokenizer_of(TEMPLATES["hermes"])
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [])
    said(dialogue, "a", tokenizer)
    text = tokenizer.decode(dialogue.answer([tool_message("0123456789" * 99), tool_message("short")], 12).ids)
    assert "<tool_response>\n012345678901\n</tool_response>" in text
    assert "<tool_response>\nshort\n</tool_response>" in text


def test_a_rewritten_history_begins_a_new_segment() -> None:
    tokenizer = tokenizer_of(chatml(_FORGETS, _JSON))
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [])
    said(dialogue, "<think>\nhm\n</think>a", tokenizer)
    assert dialogue.answer([tool_message("r")]).prompt is None  # a tool's answer leaves thoughts alone
    said(dialogue, "<think>\nso\n</think>b", tokenizer)
    reply = dialogue.answer([{"role": "user", "content": "again"}])
    assert reply.prompt is not None
    assert not reply.ids
    text = tokenizer.decode(reply.prompt)
    assert "hm" not in text
    assert "so" not in text
    assert "again" in text


def test_ids_stay_as_sampled_where_the_template_trims() -> None:
    tokenizer = tokenizer_of(TEMPLATES["llama3"])
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "who"}], [])
    ids = said(dialogue, "  a b \n", tokenizer)
    reply = dialogue.answer([tool_message("r")])
    assert reply.prompt is None
    last = said(dialogue, "c", tokenizer)
    assert dialogue.drift([*ids, *reply.ids, *last]) == 0  # the blanks in front are lost


def test_a_turn_ends_with_a_text_however_it_is_cut_into_tokens() -> None:
    tokenizer = tokenizer_of("")
    ends = TurnEnds(tokenizer, ["ab", "c"])
    ids = tokenizer.encode("xxab", add_special_tokens=False)
    assert ends(ids)
    assert not ends(ids[:-1])
    assert ids[-1] in ends.closing_ids
    assert ids[0] not in ends.closing_ids
