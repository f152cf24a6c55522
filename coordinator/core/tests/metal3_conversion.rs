//! Random objects of each Metal3 kind, drawn from its definitions, return from the other version as they
//! were, and what is edited there arrives.

use std::sync::LazyLock;

use coordinator_api::metal3;
use coordinator_core::metal3::conversion::convert_object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::Union;
use serde_json::{Map, Value, json};

/// The schemas of a kind at v1beta1 and at v1beta2.
static SCHEMAS: LazyLock<Vec<(String, [Value; 2])>> = LazyLock::new(|| {
    let former = metal3::crds();
    let pair = |newer: CustomResourceDefinition| {
        let kind = newer.spec.names.kind.clone();
        let former = former.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema =
            |crd: &CustomResourceDefinition| json!(crd.spec.versions[0].schema)["openAPIV3Schema"].clone();
        (kind, [schema(former), schema(&newer)])
    };
    metal3::v1beta2::crds().map(pair).into()
});
const VERSIONS: [&str; 2] =
    ["infrastructure.cluster.x-k8s.io/v1beta1", "infrastructure.cluster.x-k8s.io/v1beta2"];

fn text() -> BoxedStrategy<Value> {
    select(["", "", "a", "b", "name", "ä \n\"x"].map(Value::from).to_vec()).boxed()
}

fn key() -> BoxedStrategy<String> {
    select(["a", "b", "c", "name", ""].map(str::to_owned).to_vec()).boxed()
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text()
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(key(), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

/// A value that has the types of a schema. Formats, patterns and rules are not kept, because stored
/// objects may be older than they.
fn value_of(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return select(values.clone()).boxed();
    }
    if name == "timeout" {
        let timeouts = ["600s", "10m0s", "0s", "1h30m", "100.5s", "", "200000ms", "99999999999h"];
        return select(timeouts.map(Value::from).to_vec()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return prop_oneof![any::<i32>().prop_map(Value::from), text()].boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") if schema["format"] == "int32" => {
            prop_oneof![any::<i32>(), 0..4_i32].prop_map(Value::from).boxed()
        }
        Some("integer") => prop_oneof![any::<i64>(), 0..4_i64].prop_map(Value::from).boxed(),
        Some("string") => text(),
        Some("array") => vec(value_of(name, &schema["items"]), 0..3).prop_map(Value::from).boxed(),
        Some("object") if schema["additionalProperties"].is_object() => {
            let values = value_of(name, &schema["additionalProperties"]);
            btree_map(key(), values, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())).boxed()
        }
        Some("object") if schema["properties"].is_object() => object_of(schema),
        Some("object") => btree_map(key(), any_json(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        _ if name == "failureDomains" => any_domains(),
        _ => any_json(),
    }
}

/// The field of a status that has either of the forms of Cluster API.
fn any_domains() -> BoxedStrategy<Value> {
    let domain = any::<bool>().prop_map(|is_control_plane| json!({ "controlPlane": is_control_plane }));
    let domains = btree_map(key(), domain, 0..3);
    let list = domains.clone().prop_map(|map| {
        let items = map
            .into_iter()
            .map(|(name, domain)| json!({ "name": name, "controlPlane": domain["controlPlane"] }));
        items.collect()
    });
    prop_oneof![domains.prop_map(|map| Value::Object(map.into_iter().collect())), list].boxed()
}

/// Fields that a list cannot lack, because the other version has them in a map.
fn is_key(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.contains(&json!(name)))
        && ["name", "value", "index"].contains(&name)
}

fn object_of(schema: &Value) -> BoxedStrategy<Value> {
    let fields = schema["properties"].as_object().unwrap().iter().map(|(name, field)| {
        let value = value_of(name, field);
        let value = if is_key(schema, name) {
            value.prop_map(Some).boxed()
        } else if field["nullable"] == true {
            prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 4 => value.prop_map(Some)].boxed()
        } else {
            proptest::option::of(value).boxed()
        };
        let name = name.clone();
        value.prop_map(move |value| value.map(|value| (name.clone(), value))).boxed()
    });
    let fields: Vec<_> = fields.collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

fn content(object: &Value) -> Map<String, Value> {
    let parts = ["spec", "status"].into_iter();
    parts.filter_map(|part| Some((part.to_owned(), object.get(part)?.clone()))).collect()
}

/// Fields that the API server would remove, because the schema does not have them.
fn unknown_fields(place: &str, schema: &Value, value: &Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) if schema["properties"].is_object() => {
            for (name, value) in fields {
                let place = format!("{place}.{name}");
                match schema["properties"].get(name) {
                    Some(field) => unknown_fields(&place, field, value, unknown),
                    None => unknown.push(place),
                }
            }
        }
        Value::Object(fields) if schema["additionalProperties"].is_object() => {
            fields
                .values()
                .for_each(|value| unknown_fields(place, &schema["additionalProperties"], value, unknown));
        }
        Value::Array(items) => {
            for item in items {
                unknown_fields(place, &schema["items"], item, unknown);
            }
        }
        _ => {}
    }
}

/// Asserts that what an edit changes, without regard to the annotation, is in the edited object.
fn assert_arrived(before: &Map<String, Value>, after: &Map<String, Value>, edited: &Map<String, Value>) {
    for name in before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name)) {
        match (before.get(name), after.get(name), edited.get(name)) {
            (Some(Value::Object(before)), Some(Value::Object(after)), Some(Value::Object(edited))) => {
                assert_arrived(before, after, edited);
            }
            (_, after, edited) => assert_eq!(after, edited, "{name}"),
        }
    }
}

/// The number of a kind and of a version, an object of it, and one of the other version for the edit.
type Drawn = (usize, usize, Value, Value);

fn any_metadata() -> impl Strategy<Value = Value> {
    let annotated = |annotations: Value| json!({ "name": "o", "annotations": annotations });
    let choices = [json!({ "name": "o" }), annotated(json!({})), annotated(json!({ "example.com/a": "b" }))];
    proptest::sample::select(choices.to_vec())
}

fn any_objects() -> impl Strategy<Value = Drawn> {
    let drawn = |(of, (kind, schemas)): (usize, &'static (String, [Value; 2]))| {
        let object = |version: usize| {
            let mut parts = schemas[version]["properties"].clone();
            parts.as_object_mut().unwrap().retain(|part, _| ["spec", "status"].contains(&&**part));
            let bare = json!({ "apiVersion": VERSIONS[version], "kind": kind });
            (object_of(&json!({ "properties": parts })), any_metadata()).prop_map(
                move |(content, metadata)| {
                    let mut object = bare.as_object().unwrap().clone();
                    object.insert("metadata".to_owned(), metadata);
                    object.extend(content.as_object().unwrap().clone());
                    Value::Object(object)
                },
            )
        };
        let (former, newer) = (object(0).boxed(), object(1).boxed());
        let of_former = (Just(of), Just(0), former.clone(), newer.clone()).boxed();
        [of_former, (Just(of), Just(1), newer, former).boxed()]
    };
    Union::new(SCHEMAS.iter().enumerate().flat_map(drawn))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_return_as_they_were((of, version, object, edit) in any_objects(), field in any::<Index>()) {
        let (own, other) = (VERSIONS[version], VERSIONS[1 - version]);
        let schema = &SCHEMAS[of].1[1 - version];
        let mut converted = convert_object(object.clone(), other).unwrap();
        for part in ["spec", "status"] {
            let mut unknown = vec![];
            let is_foreign = |place: &String| place.starts_with("status.v1beta2") || place.starts_with("status.deprecated");
            unknown_fields(part, &schema["properties"][part], &converted[part], &mut unknown);
            unknown.retain(|place| !is_foreign(place) && !place.ends_with("severity"));
            prop_assert_eq!(unknown, Vec::<String>::new(), "{:#}", converted);
        }
        let returned = convert_object(converted.clone(), own).unwrap();
        prop_assert_eq!(&returned, &object);

        let Some(fields) = edit["spec"].as_object().filter(|fields| !fields.is_empty()) else { return Ok(()) };
        let names: Vec<_> = fields.keys().collect();
        let name = field.get(&names);
        if !converted["spec"].is_object() {
            converted["spec"] = json!({});
        }
        let unedited = converted.clone();
        converted["spec"][*name] = fields[*name].clone();
        let edited = convert_object(converted.clone(), own).unwrap();
        let seen = convert_object(edited.clone(), other).unwrap();
        prop_assert_eq!(content(&seen), content(&converted), "through {:#}", edited);
        let plain = |object: Value| {
            let mut object = object;
            object["metadata"] = json!({ "name": "o" });
            content(&convert_object(object, own).unwrap())
        };
        let (before, after) = (plain(unedited), plain(converted));
        assert_arrived(&before, &after, &content(&edited));
    }
}
