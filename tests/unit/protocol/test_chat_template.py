"""Chat templates: rendered as transformers renders them, on any day, and harmless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.chat_template import rendered
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
{%- endif %}
"""
SPELT_OUT = """{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}
[{{ loop.index }}] {{ message | tojson }}{{ eos_token }}
{% endfor %}{% if tools is not none %}tools{% endif %}"""
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " 1 + 1 = <é> "}]


def with_template(template: str | None) -> Tokenizer:
    return Tokenizer(make_tokenizer(), [EOS_ID], PAD_ID, PAD_ID, template)


def test_a_conversation_ends_where_the_assistant_begins() -> None:
    assert rendered(with_template(CHATML), MESSAGES) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1 = <é><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


@pytest.mark.parametrize("template", [CHATML, SPELT_OUT])
def test_transformers_renders_the_same(template: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    tokenizer = with_template(template)
    special = {
        "bos_token": tokenizer.name_of(PAD_ID),
        "eos_token": tokenizer.name_of(EOS_ID),
        "pad_token": tokenizer.name_of(PAD_ID),
    }
    assert all(special.values())
    texts, _ = render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=True, **special)
    assert rendered(tokenizer, MESSAGES) == texts[0]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (None, "neither chat_template.jinja"),
        ("{{ raise_exception('no system message here') }}", "no system message here"),
        ("{{ strftime_now('%d %b %Y') }}", "prompts must be the same on every day"),
        ("{{ lipsum() }}", "lipsum"),
        ("{% for %}", "Expected"),
        ("{{ 1 // 0 }}", "by zero"),
        ("{{ messages[9].content }}", "no element 9"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ range(10**9) | list }}", "range"),
    ],
)
def test_what_a_template_must_not_do_is_refused(template: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=r"chat template") as error:
        rendered(with_template(template), MESSAGES)
    assert why in error.value.why


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": "{}"}, None),
        ({"tokenizer_config.json": '{"chat_template": "old"}'}, "old"),
        ({"tokenizer_config.json": '{"chat_template": "old"}', "chat_template.jinja": "new"}, "new"),
        (
            {"tokenizer_config.json": '{"chat_template": [{"name": "rag", "template": "r"},'
             ' {"name": "default", "template": "d"}]}'},
            "d",
        ),
    ],
)  # fmt: skip
def test_the_template_comes_with_the_tokenizer(tmp_path: Path, files: dict[str, str], template: str | None) -> None:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Tokenizer.load(tmp_path).chat_template == template


@pytest.mark.parametrize("settings", ["{", "[]", '{"chat_template": [{"name": "default"}]}'])
def test_settings_that_cant_be_read_are_named(tmp_path: Path, settings: Any) -> None:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    (tmp_path / "tokenizer_config.json").write_text(settings)
    with pytest.raises(ConfigError, match="can't be read"):
        Tokenizer.load(tmp_path)
