"""What this process does with sessions, as OpenTelemetry spans: off unless it is configured.

The sessions' logs are read beside the work (`watch`), folded into spans (`spans`) and sent as OTLP/HTTP with JSON
(`otlp`). No SDK: the format is small and stable, and a start must not pay for one.

Rule 1: nothing waits for it. A collector that is slow or gone costs spans, which are counted, and never a turn.
Rule 2: a span has no content (prompts, answers, arguments, results, paths, messages of errors) unless
`telemetry.content` says so, and never a key.
"""
