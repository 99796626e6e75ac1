"""The JSON Schemas describe every field, and real documents are valid by them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from gpuwatch.core.model.json_codec import DOCUMENTS, WRITE_ONLY_DOCUMENTS, from_json, schema_of, to_json
from gpuwatch.core.model.json_schemas import FIELDS
from tests.every import every

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@pytest.mark.thorough
@every(DOCUMENTS | WRITE_ONLY_DOCUMENTS)
def test_every_field_of_a_schema_has_a_title_and_a_description(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    assert schema["$id"] == f"urn:gpuwatch:{name}/1"
    assert schema["title"] == f"gpuwatch.{name}/1"
    for struct, definition in schema["$defs"].items():
        assert definition["description"], struct
        for field, described in definition["properties"].items():
            assert described["title"], (struct, field)
            assert described["description"], (struct, field)
            assert "``" not in described["description"], (struct, field)
            assert ":attr:" not in described["description"], (struct, field)


def test_no_description_is_kept_of_a_field_that_is_gone() -> None:
    fields = {
        name
        for document in DOCUMENTS | WRITE_ONLY_DOCUMENTS
        for struct, definition in schema_of(document)["$defs"].items()
        for field in definition["properties"]
        for name in (field, f"{struct}.{field}")
    }
    assert set(FIELDS) <= fields


def test_a_document_is_valid_by_its_schema() -> None:
    document = json.loads((FIXTURES / "snapshot.json").read_text())
    validator = jsonschema.Draft202012Validator(schema_of("snapshot"))
    validator.validate(document)
    validator.validate(json.loads(to_json(from_json((FIXTURES / "snapshot.json").read_bytes()))))
    document["devices"][0]["uuid"] = 7
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)
