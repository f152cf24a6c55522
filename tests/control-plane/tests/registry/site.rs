//! The coordinator's base images, with an API server in memory for its Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_plane::Registry;
use control_plane::registry::{PASSWORD, USER};
use coordinator::base_image::limits::BaseImageLimits;
use coordinator::base_image::{BaseImage, BaseImageError, BaseImages, Wanted};
use coordinator_api::seed_image::{SeedImage, SeedImageSpec};
use coordinator_core::seed_image::Base;
use fake_apiserver::FakeApi;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

const NAMESPACE: &str = "fleet";

pub(crate) struct Site {
    pub(crate) images: BaseImages,
    secrets: Api<Secret>,
    cache: tempfile::TempDir,
}

impl Site {
    /// Secrets: `ca` of the registry, and the pull Secrets `right`, `wrong`, and
    /// `elsewhere` for another registry.
    pub(crate) async fn start(registry: &Registry, limits: BaseImageLimits) -> Self {
        let fake = FakeApi::new();
        let cache = tempfile::tempdir().unwrap();
        let limits = BaseImageLimits { allow_base: vec!["127.0.0.1".parse().unwrap()], ..limits };
        let images = BaseImages::new(cache.path().to_owned(), limits).unwrap();
        let images = images.with_secrets(fake.client("coordinator"));
        let secrets = Api::namespaced(fake.client("operator"), NAMESPACE);
        let site = Self { images, secrets, cache };
        site.create_authorities("ca", &[registry.authority()]).await;
        for (name, address, password) in [
            ("right", registry.address(), PASSWORD),
            ("wrong", registry.address(), "wrong horse"),
            ("elsewhere", "registry.example", PASSWORD),
        ] {
            let auth = STANDARD.encode(format!("{USER}:{password}"));
            let document = json!({ "auths": { address: { "auth": auth } } }).to_string();
            site.create_secret(name, "kubernetes.io/dockerconfigjson", ".dockerconfigjson", &document).await;
        }
        site
    }

    pub(crate) async fn create_authorities(&self, name: &str, certificates: &[&str]) {
        self.create_secret(name, "Opaque", "ca.crt", &certificates.concat()).await;
    }

    async fn create_secret(&self, name: &str, kind: &str, key: &str, value: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": { "name": name },
            "data": { key: STANDARD.encode(value) },
        });
        self.secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    pub(crate) fn wanted(image: &str, pull: Option<&str>, authority: Option<&str>) -> Wanted {
        let spec = SeedImageSpec {
            base_image: Some(image.to_owned()),
            base_image_pull_secret: pull.map(str::to_owned),
            base_image_ca_secret: authority.map(str::to_owned),
            ..SeedImageSpec::default()
        };
        let mut seed = SeedImage::new("seed", spec);
        seed.metadata.namespace = Some(NAMESPACE.to_owned());
        Wanted::of(&seed)
    }

    pub(crate) async fn fetch(
        &self,
        image: &str,
        pull: Option<&str>,
        authority: Option<&str>,
        base: Base,
    ) -> Result<BaseImage, BaseImageError> {
        self.images.fetch_image(Self::wanted(image, pull, authority), base, None).await
    }

    /// Files of the cache with that ending.
    pub(crate) fn files(&self, ending: &str) -> usize {
        let names = std::fs::read_dir(self.cache.path()).unwrap();
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with(ending)).count()
    }
}
