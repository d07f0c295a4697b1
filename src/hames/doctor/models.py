"""Which model a new session gets, and what the operator's file of models says; the providers are asked elsewhere."""

from __future__ import annotations

from hames.config import SETTINGS
from hames.doctor.case import Case, Finding, Problem
from hames.naming import OFFLINE, default_model, model_named
from hames.protocol.errors import Refused
from hames.providers import PROVIDERS


def check_model(case: Case) -> Finding:
    """The model that is taken where none is named: it is one, and has an address and, where it needs one, a key."""
    if fault := _fault(case, "model"):
        return Finding("not known", (Problem("fail", fault.message, "Run: hames config set model <provider>/<model>"),))
    text = default_model(case.config)
    try:
        name, model = model_named(case.config, text)
    except Refused as refused:
        advice = f"Run: hames config set model {text if text in PROVIDERS else '<provider>'}/<model>"
        return Finding(text, (Problem("fail", refused.message, advice),))
    origin = case.config.sources.get("model", "default")
    if name == OFFLINE:
        return Finding(f"offline ({origin}): prompts are scripts", _with_keys(case))
    return Finding(f"{name}/{model} ({origin})", _out_of_reach(case, name), {"provider": name, "model": model})


def _fault(case: Case, setting: str) -> Refused | None:
    return next((fault for fault in case.faults if fault.details.get("setting") == setting), None)


def _with_keys(case: Case) -> tuple[Problem, ...]:
    """That a key waits for a model to be named."""
    if case.config.get("model") is not None:
        return ()
    keyed = [name for name, row in PROVIDERS.items() if row.needs_key and case.config.provider_url(name)]
    return tuple(
        Problem(
            "warn",
            f"There is a key for {name}, and no model is named.",
            f"Run: hames config set model {name}/<model> (`hames models {name}` lists them)",
        )
        for name in keyed
    )


def _out_of_reach(case: Case, name: str) -> tuple[Problem, ...]:
    """That its provider cannot be asked, as far as the configuration tells."""
    row = PROVIDERS[name]
    if case.config.provider_url(name):
        return ()
    if row.base_url is None:
        setting = f"providers.{name}.baseUrl"
        advice = f"Run: hames config set {setting} http://127.0.0.1:8080/v1 (or where yours is)"
        return (Problem("fail", f"The provider {name} has no address.", advice),)
    setting = f"providers.{name}.apiKey"
    variables = " or ".join((SETTINGS[setting].environment, *row.key_variables))
    advice = f"Set {variables}, or run: hames config set {setting} -"
    return (Problem("fail", f"The provider {name} wants a key, and none is configured.", advice),)


def check_models(case: Case) -> Finding:
    """The operator's file of models, where there is one: it is there, and of use."""
    from hames.catalog import SETTING, load_catalogs

    path = case.config.get(SETTING)
    fault = _fault(case, SETTING)
    try:
        catalogs = load_catalogs(path)
    except Refused as refused:
        fault = fault or refused
    if fault is not None:
        advice = f"Every new session is refused until then. Mend it, or run: hames config unset {SETTING}"
        return Finding(str(path or "not known"), (Problem("fail", fault.message, advice),))
    counts = [sum(len(card.models) for card in catalog.cards) for catalog in catalogs]
    own = f"{counts[-1]} models are known to this build"
    return Finding(own if path is None else f"{own}, {counts[0]} to {path}", details={"file": path})
