use serde_json::{Value, json};

use super::*;

const V1BETA1: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const V1BETA2: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

fn object(version: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "o" }, "spec": spec });
    if !status.is_null() {
        object["status"] = status.clone();
    }
    object
}

fn former(kind: &str, spec: &Value, status: &Value) -> Value {
    object(V1BETA1, kind, spec, status)
}

fn newer(kind: &str, spec: &Value, status: &Value) -> Value {
    object(V1BETA2, kind, spec, status)
}

/// Asserts the content of the converted object, and that the object returns as it was.
fn assert_converted(from: &Value, to: &Value) {
    let target = to["apiVersion"].as_str().unwrap();
    let converted = convert_object(from.clone(), target).unwrap();
    for part in ["apiVersion", "kind", "spec", "status"] {
        assert_eq!(converted.get(part), to.get(part), "{part} of {from:#}");
    }
    let returned = convert_object(converted, from["apiVersion"].as_str().unwrap()).unwrap();
    assert_eq!(&returned, from);
}

fn has_differences(object: &Value) -> bool {
    object["metadata"]["annotations"].get(CONVERSION_DIFFERENCES).is_some()
}

#[test]
fn cluster_lists_domains_and_has_one_provider_field() {
    let domains =
        json!({ "b": { "controlPlane": true }, "a": { "controlPlane": false, "attributes": { "x": "y" } } });
    let list = json!([
        { "name": "a", "controlPlane": false, "attributes": { "x": "y" } }, { "name": "b", "controlPlane": true },
    ]);
    for (given, want) in [
        (json!({}), json!({})),
        (json!({ "noCloudProvider": true }), json!({ "cloudProviderEnabled": false })),
        (json!({ "cloudProviderEnabled": true }), json!({ "cloudProviderEnabled": true })),
        (
            json!({ "cloudProviderEnabled": true, "noCloudProvider": true }),
            json!({ "cloudProviderEnabled": true }),
        ),
        (json!({ "failureDomains": domains }), json!({ "failureDomains": list })),
    ] {
        let endpoint = json!({ "host": "h", "port": 6443 });
        let with_endpoint = |mut spec: Value| {
            spec["controlPlaneEndpoint"] = endpoint.clone();
            spec
        };
        let (given, want) = (with_endpoint(given), with_endpoint(want));
        assert_converted(
            &former("Metal3Cluster", &given, &Value::Null),
            &newer("Metal3Cluster", &want, &Value::Null),
        );
        let metadata = json!({ "labels": { "a": "b" } });
        let template = |spec: &Value| json!({ "template": { "metadata": metadata, "spec": spec } });
        let kind = "Metal3ClusterTemplate";
        assert_converted(
            &former(kind, &template(&given), &Value::Null),
            &newer(kind, &template(&want), &Value::Null),
        );
    }
    let unordered = json!({ "failureDomains": [{ "name": "b" }, { "name": "a", "controlPlane": true }] });
    let map = json!({ "failureDomains": { "a": { "controlPlane": true }, "b": {} } });
    assert_converted(
        &newer("Metal3Cluster", &unordered, &Value::Null),
        &former("Metal3Cluster", &map, &Value::Null),
    );
}

#[test]
fn readiness_has_one_form_at_each_version() {
    let condition = json!({ "type": "Ready", "status": "True", "severity": "Info" });
    let newer_condition = json!({ "type": "Ready", "status": "True", "reason": "Ready", "message": "" });
    for (given, want) in [
        (
            json!({ "ready": true, "initialization": { "provisioned": true }, "conditions": [newer_condition] }),
            json!({ "initialization": { "provisioned": true }, "conditions": [newer_condition] }),
        ),
        (json!({ "ready": true }), json!({ "initialization": { "provisioned": true } })),
        (json!({ "ready": false }), json!({})),
        (
            // CAPM3 has two lists of conditions.
            json!({
                "ready": true, "conditions": [condition], "v1beta2": { "conditions": [newer_condition] },
                "failureReason": "x", "failureMessage": "y",
            }),
            json!({
                "initialization": { "provisioned": true }, "conditions": [newer_condition],
                "deprecated": { "v1beta1": { "conditions": [condition], "failureReason": "x", "failureMessage": "y" } },
            }),
        ),
    ] {
        for kind in ["Metal3Cluster", "Metal3Machine"] {
            assert_converted(&former(kind, &json!({}), &given), &newer(kind, &json!({}), &want));
        }
    }
    let unprovisioned = json!({ "initialization": { "provisioned": false } });
    let unready = json!({ "initialization": { "provisioned": false }, "ready": false });
    let kind = "Metal3Cluster";
    assert_converted(&newer(kind, &json!({}), &unprovisioned), &former(kind, &json!({}), &unready));
    for domains in [json!({ "a": { "controlPlane": true } }), json!([{ "name": "a", "controlPlane": true }])]
    {
        let given = json!({ "ready": false, "failureDomains": domains });
        let want = json!({ "failureDomains": [{ "name": "a", "controlPlane": true }] });
        assert_converted(&former(kind, &json!({}), &given), &newer(kind, &json!({}), &want));
    }
}

#[test]
fn machine_refers_by_name_without_empty_texts() {
    let image = json!({ "url": "oci://r/i:t", "checksum": "", "checksumType": "", "format": "raw" });
    let given = json!({
        "providerID": "", "image": image, "hostSelector": {},
        "dataTemplate": { "name": "t", "namespace": "", "kind": "Metal3DataTemplate", "uid": "1" },
    });
    let want = json!({
        "image": { "url": "oci://r/i:t", "checksum": "", "diskFormat": "raw" }, "hostSelector": {},
        "dataTemplate": { "name": "t" },
    });
    let status =
        json!({ "ready": false, "phase": "Running", "renderedData": { "name": "d", "apiVersion": "x" } });
    let shown = json!({ "phase": "Running", "renderedData": { "name": "d" } });
    assert_converted(&former("Metal3Machine", &given, &status), &newer("Metal3Machine", &want, &shown));
    let none = json!({ "image": { "url": "", "checksumType": "", "format": "" }, "dataTemplate": {} });
    let kind = "Metal3Machine";
    assert_converted(&former(kind, &none, &Value::Null), &newer(kind, &json!({}), &Value::Null));
    let metadata = json!({ "labels": {}, "name": "x" });
    let template = json!({ "nodeReuse": true, "template": { "metadata": metadata, "spec": given } });
    let shown = json!({ "nodeReuse": true, "template": { "metadata": { "labels": {} }, "spec": want } });
    let kind = "Metal3MachineTemplate";
    assert_converted(&former(kind, &template, &Value::Null), &newer(kind, &shown, &Value::Null));
}

#[test]
fn data_has_no_template_reference_at_v1beta2() {
    let given = json!({
        "index": 5_000_000_000_i64, "templateReference": "t", "claim": { "name": "c", "uid": "1" },
        "template": { "name": "t" },
    });
    let want = json!({ "index": 5_000_000_000_i64, "claim": { "name": "c" }, "template": { "name": "t" } });
    let (status, shown) = (json!({ "ready": true, "errorMessage": "" }), json!({ "ready": true }));
    assert_converted(&former("Metal3Data", &given, &status), &newer("Metal3Data", &want, &shown));
    let given = json!({ "template": { "name": "t", "kind": "Metal3DataTemplate" } });
    let status = json!({ "errorMessage": "", "renderedData": { "name": "d", "namespace": "n", "uid": "1" } });
    let shown = json!({ "renderedData": { "name": "d", "namespace": "n" } });
    let kind = "Metal3DataClaim";
    let want = json!({ "template": { "name": "t" } });
    assert_converted(&former(kind, &given, &status), &newer(kind, &want, &shown));
}

#[test]
fn data_template_renames_pools_and_lists_maps() {
    let pool = json!([{ "key": "k", "name": "p" }]);
    let given = json!({
        "clusterName": "", "templateReference": "former",
        "metaData": {
            "ipAddressesFromIPPool": pool, "prefixesFromIPPool": pool, "gatewaysFromIPPool": pool, "dnsServersFromIPPool": pool,
        },
        "networkData": {
            "links": {
                "ethernets": [{ "id": "e", "macAddress": { "string": "", "fromHostInterface": "eth0" } }],
                "bonds": [{ "id": "b", "bondXmitHashPolicy": "", "parameters": { "primary": "e", "miimon": 100 } }],
            },
            "networks": { "ipv4": [{
                "id": "n", "ipAddressFromIPPool": "p", "fromPoolRef": { "kind": "", "name": "" },
                "routes": [{
                    "gateway": { "fromPoolRef": { "name": "" }, "fromIPPool": "p" }, "services": { "dnsFromIPPool": "" },
                }],
            }] },
            "services": { "dnsFromIPPool": "" },
        },
    });
    let want = json!({
        "metaData": {
            "ipAddressesFromPool": pool, "prefixesFromPool": pool, "gatewaysFromPool": pool, "dnsServersFromPool": pool,
        },
        "networkData": {
            "links": {
                "ethernets": [{ "id": "e", "macAddress": { "fromHostInterface": "eth0" } }],
                "bonds": [{ "id": "b", "parameters": [{ "name": "miimon", "value": 100 }, { "name": "primary", "value": "e" }] }],
            },
            "networks": { "ipv4": [{
                "id": "n", "ipAddressFromIPPool": "p", "routes": [{ "gateway": { "fromIPPool": "p" }, "services": {} }],
            }] },
            "services": {},
        },
    });
    let status = json!({ "indexes": { "a": 2, "b": 0, "c": 2 } });
    let shown = json!({ "indexes": [{ "name": "b", "index": 0 }, { "name": "a", "index": 2 }, { "name": "c", "index": 2 }] });
    let kind = "Metal3DataTemplate";
    assert_converted(&former(kind, &given, &status), &newer(kind, &want, &shown));
    let unordered = json!({ "indexes": [{ "name": "b", "index": 1 }, { "name": "a", "index": 0 }] });
    let map = json!({ "indexes": { "a": 0, "b": 1 } });
    assert_converted(&newer(kind, &json!({}), &unordered), &former(kind, &json!({}), &map));
}

#[test]
fn timeout_is_in_seconds_at_v1beta2() {
    for (timeout, seconds) in [
        (json!("600s"), json!(600)),
        (json!("10m0s"), json!(600)),
        (json!("1h30m"), json!(5400)),
        (json!("100.5s"), json!(100)),
        (json!("1.15m"), json!(69)),
        (json!("100000ms"), json!(100)),
        (json!("-100s"), json!(-100)),
        (json!("0s"), Value::Null),
        (json!("0"), Value::Null),
        (json!(""), Value::Null),
        (Value::Null, Value::Null),
        (json!("99999999999999999999999999999999999999999999h"), json!(i32::MAX)),
    ] {
        let spec = |name: &str, value: &Value| {
            let mut strategy = json!({ "type": "Reboot" });
            if !value.is_null() {
                strategy[name] = value.clone();
            }
            json!({ "strategy": strategy })
        };
        let (given, want) = (spec("timeout", &timeout), spec("timeoutSeconds", &seconds));
        let status = json!({ "phase": "Running", "retryCount": 0 });
        let kind = "Metal3Remediation";
        assert_converted(&former(kind, &given, &status), &newer(kind, &want, &status));
        let template = |spec: &Value| json!({ "template": { "spec": spec } });
        let kind = "Metal3RemediationTemplate";
        assert_converted(
            &former(kind, &template(&given), &Value::Null),
            &newer(kind, &template(&want), &Value::Null),
        );
    }
}

#[test]
fn objects_that_both_express_have_no_annotation() {
    let spec = json!({ "strategy": { "type": "Reboot", "retryLimit": 1, "timeout": "600s" } });
    let given = former("Metal3Remediation", &spec, &Value::Null);
    let converted = convert_object(given, V1BETA2).unwrap();
    assert!(!has_differences(&converted), "{converted}");
    let spec = json!({ "controlPlaneEndpoint": { "host": "h" }, "cloudProviderEnabled": false });
    let created = convert_object(newer("Metal3Cluster", &spec, &Value::Null), V1BETA1).unwrap();
    assert!(!has_differences(&created), "{created}");
    assert_eq!(created["spec"]["noCloudProvider"], true);
}

/// An API server that applies an empty map converts it back and forth.
#[test]
fn empty_annotations_stay_empty() {
    for status in [Value::Null, json!({ "ready": true })] {
        let mut given = former("Metal3Machine", &json!({}), &status);
        given["metadata"]["annotations"] = json!({});
        let mut converted = convert_object(given.clone(), V1BETA2).unwrap();
        assert_eq!(has_differences(&converted), !status.is_null(), "{converted}");
        assert_eq!(convert_object(converted.clone(), V1BETA1).unwrap(), given);
        converted["metadata"]["annotations"]["other"] = json!("kept");
        let returned = convert_object(converted, V1BETA1).unwrap();
        assert_eq!(returned["metadata"]["annotations"], json!({ "other": "kept" }));
    }
}

#[test]
fn edit_at_other_version_wins_rest_returns() {
    let spec = json!({
        "noCloudProvider": true, "controlPlaneEndpoint": { "host": "h", "port": 6443 },
        "failureDomains": { "a": { "controlPlane": false } },
    });
    let mut object = convert_object(former("Metal3Cluster", &spec, &Value::Null), V1BETA2).unwrap();
    object["spec"]["controlPlaneEndpoint"]["host"] = json!("other");
    let returned = convert_object(object.clone(), V1BETA1).unwrap();
    assert_eq!(returned["spec"]["controlPlaneEndpoint"]["host"], "other");
    assert_eq!(returned["spec"]["noCloudProvider"], true);
    assert_eq!(returned["spec"].get("cloudProviderEnabled"), None, "as it was");
    object["spec"]["cloudProviderEnabled"] = json!(true);
    let returned = convert_object(object, V1BETA1).unwrap();
    assert_eq!(returned["spec"]["cloudProviderEnabled"], true);
    assert_eq!(returned["spec"]["noCloudProvider"], false, "the two do not contradict each other");
}

#[test]
fn reference_to_another_keeps_nothing_of_former() {
    let spec = json!({ "dataTemplate": { "name": "t", "uid": "1", "apiVersion": "x" } });
    let mut object = convert_object(former("Metal3Machine", &spec, &Value::Null), V1BETA2).unwrap();
    object["spec"]["dataTemplate"]["name"] = json!("other");
    let returned = convert_object(object, V1BETA1).unwrap();
    assert_eq!(returned["spec"]["dataTemplate"], json!({ "name": "other" }));
}

#[test]
fn annotation_for_another_version_has_no_effect() {
    let difference = |version: &str| json!({ version: [[["spec", "providerID"], [], ["x"]]] }).to_string();
    for (text, want) in [
        (difference("v1beta1"), Some("x")),
        (difference("v1beta2"), None),
        ("{".to_owned(), None),
        (json!({ "v1beta1": [[["spec"], []]] }).to_string(), None),
        (json!({ "v1beta1": [[[], [], ["x"]], [["a", "b"], [], ["x"]]] }).to_string(), None),
    ] {
        let mut object = newer("Metal3Machine", &json!({}), &Value::Null);
        object["metadata"]["annotations"] = json!({ CONVERSION_DIFFERENCES: text, "other": "kept" });
        let converted = convert_object(object, V1BETA1).unwrap();
        assert_eq!(converted["spec"].get("providerID").and_then(Value::as_str), want, "{text}");
        assert_eq!(has_differences(&converted), want.is_some(), "{text}");
        assert_eq!(converted["metadata"]["annotations"]["other"], "kept");
    }
}

#[test]
fn what_cannot_be_converted_is_named() {
    for (spec, want) in [
        (json!({ "failureDomains": ["a"] }), "spec.failureDomains is not an object"),
        (json!({ "failureDomains": { "a": 1 } }), "spec.failureDomains is not a map of objects"),
        (json!({ "noCloudProvider": "yes" }), "spec.noCloudProvider is not true or false"),
        (json!("text"), "spec is not an object"),
    ] {
        let error = convert_object(former("Metal3Cluster", &spec, &Value::Null), V1BETA2).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
    let bond = json!({ "networkData": { "links": { "bonds": [{}, 1] } } });
    let error = convert_object(former("Metal3DataTemplate", &bond, &Value::Null), V1BETA2).unwrap_err();
    assert_eq!(error.to_string(), "spec.networkData.links.bonds[1] is not an object");
    for timeout in ["soon", "-", "1", "1d", "1.x", ".s"] {
        let spec = json!({ "strategy": { "timeout": timeout } });
        let error = convert_object(former("Metal3Remediation", &spec, &Value::Null), V1BETA2).unwrap_err();
        assert_eq!(error.to_string(), "spec.strategy.timeout is not a duration", "{timeout}");
    }
    for (from, kind, to) in [
        (V1BETA1, "BaremetalCluster", V1BETA2),
        (V1BETA1, "Metal3Cluster", "infrastructure.cluster.x-k8s.io/v1"),
        ("ipam.metal3.io/v1beta1", "Metal3Cluster", V1BETA2),
    ] {
        let error = convert_object(object(from, kind, &json!({}), &Value::Null), to).unwrap_err();
        assert!(matches!(error, ConversionError::Unknown { .. }), "{error}");
    }
}
