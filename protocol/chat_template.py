"""Prompts of instruction models: messages put into the model's own chat template, the same text on every machine.

In: a template (Jinja, as it comes with the model's tokenizer) and messages. Out: the text before the model's turn.
Templates come from the trainer: they run in Jinja's sandbox, see no clock, and can't alter what they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jinja2 import Template

Message = dict[str, str]
"""`role` and `content`."""


def rendered(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The conversation up to where the assistant begins to speak; raises ConfigError where the template can't do it.

    Example: `rendered(tokenizer, [{"role": "user", "content": "7 + 8 ="}])`.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            "the model has no chat template",
            "neither chat_template.jinja nor tokenizer_config.json in its folder has one",
            "set chat_template = false and put the template, rendered, into prompt_template",
        )
    import jinja2

    try:
        text: str = _compiled(tokenizer.chat_template).render(
            messages=list(messages),
            add_generation_prompt=True,
            tools=None,
            documents=None,
            bos_token=tokenizer.name_of(tokenizer.bos_id),
            eos_token=tokenizer.name_of(tokenizer.eos_ids[0]),
            pad_token=tokenizer.name_of(tokenizer.pad_id),
        )
    except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError) as error:
        raise ConfigError("the model's chat template can't be rendered", str(error)) from error
    return text


def template_identity(tokenizer: Tokenizer) -> dict[str, Any]:
    """What decides the rendering: the template, and the engine up to what its patch releases may mend."""
    return {"template": tokenizer.chat_template, "jinja2": ".".join(version("jinja2").split(".")[:2])}


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    import json

    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _no_clock
    for name in ("lipsum", "cycler", "joiner"):  # lipsum draws at random
        environment.globals.pop(name, None)
    return environment.from_string(template)


def _refuse(why: str) -> NoReturn:
    """What templates call where they can't render a conversation."""
    from jinja2 import TemplateError

    raise TemplateError(why)


def _no_clock(form: str) -> NoReturn:
    """A date in the prompt would differ between a worker today and a verifier tomorrow."""
    _refuse(f"it asks for the date (strftime_now {form!r}), and prompts must be the same on every day")
