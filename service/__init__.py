"""The only composer: use cases, REST API, OpenAI API and store."""
