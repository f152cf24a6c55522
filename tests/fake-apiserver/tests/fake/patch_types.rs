//! Patch types that the server does not serve.

use fake_apiserver::FakeApi;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn unsupported_patch_types_are_rejected() {
    let fake = FakeApi::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(fake.client("one"));
    let map = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let patches = [Patch::Apply(body.clone()), Patch::Strategic(body)];
    for patch in patches {
        let result = maps.patch("a", &PatchParams::apply("one"), &patch).await;
        let Err(kube::Error::Api(status)) = result else {
            panic!("{patch:?}: {result:?}");
        };
        assert_eq!((status.code, status.reason.as_str()), (415, "UnsupportedMediaType"), "{patch:?}");
    }
}
