from pathlib import Path

import pytest

from service.deployment.file import LlmEndpoint
from service.deployment.settings import Settings, llm_settings, read_settings
from service.documents.errors import StartError
from tests.rows import rows


def test_what_is_given_goes_before_the_environment_and_that_before_the_defaults(monkeypatch):
    monkeypatch.setenv("INTENTCTL_PORT", "9000")
    monkeypatch.setenv("INTENTCTL_HOST", "0.0.0.0")
    settings = read_settings(port=0, host=None)

    assert (settings.port, settings.host) == (0, "0.0.0.0")
    assert settings.log_level == "warning"


def test_the_home_folder_is_filled_in(monkeypatch):
    monkeypatch.delenv("INTENTCTL_DATA_DIR", raising=False)

    assert read_settings().folder.is_relative_to(Path.home())


@rows(("name", "value"), [("INTENTCTL_PORT", "many"), ("INTENTCTL_LOG_LEVEL", "loud")])
def test_a_variable_that_cannot_be_understood_is_named(monkeypatch, name, value):
    with monkeypatch.context() as patch:
        patch.setenv(name, value)
        with pytest.raises(StartError, match=f"{name}='{value}'"):
            read_settings()


def test_a_password_is_read_from_its_file_as_it_stands_there(monkeypatch, tmp_path):
    monkeypatch.delenv("INTENTCTL_DATABASE_PASSWORD_FILE", raising=False)
    assert read_settings().database_password() is None
    file = tmp_path / "password"
    file.write_text(" p@ss/word:?%41é\n", encoding="utf-8")
    monkeypatch.setenv("INTENTCTL_DATABASE_PASSWORD_FILE", str(file))

    assert read_settings().database_password() == " p@ss/word:?%41é"
    assert "p@ss" not in repr(read_settings())


@rows(("content", "reason"), [(None, "No such file"), (b"\n", "empty"), (b"\xff", "no text")])
def test_a_password_file_that_says_nothing_is_named(monkeypatch, tmp_path, content, reason):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("INTENTCTL_DATABASE_PASSWORD_FILE", str(file))

    with pytest.raises(StartError, match=f"INTENTCTL_DATABASE_PASSWORD_FILE='{file}': .*{reason}"):
        read_settings().database_password()


def test_the_llm_takes_its_key_from_the_variable_the_deployment_names(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    settings = llm_settings(LlmEndpoint("http://llm/v1", "m", "SOME_KEY", 3.0), Settings())

    assert (settings.api_key, settings.timeout_s) == ("secret", 3.0)
    assert "secret" not in repr(settings)


def test_a_key_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)

    with pytest.raises(StartError, match="SOME_KEY, which is not set"):
        llm_settings(LlmEndpoint("http://llm/v1", "m", "SOME_KEY", 3.0), Settings())


@rows(("host", "reached"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("10.0.0.7", "10.0.0.7")])
def test_a_served_translator_is_reached_where_the_service_is(host, reached):
    settings = llm_settings(LlmEndpoint(None, "m", None, 3.0), Settings(host=host, port=81))

    assert (settings.base_url, settings.model) == (f"http://{reached}:81/openai/v1", "m")
