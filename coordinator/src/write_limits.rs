//! The proof that the API server refuses writes that are not the coordinator's own.
//!
//! A role cannot limit which Secrets are created, so that a `ValidatingAdmissionPolicy` does. Without it
//! whoever takes over a replica can write any Secret of any namespace. A replica therefore tries a forbidden
//! write as a dry run before it writes anything or serves hosts.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::Status;

use crate::health::Readiness;
use crate::metrics::Metrics;
use crate::telemetry::chain;

/// A policy takes effect about a second after it is installed.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Repetition of the same line of the log: once a minute.
const LOG_EVERY: u32 = 30;

const POLICY: &str = "baremetal-coordinator-secrets";
const UNLIMITED: &str = "the API server lets this account write any Secret: the ValidatingAdmissionPolicy \
                         baremetal-coordinator-secrets is missing or does not deny; next: apply the \
                         manifests of this version (rbac.yaml), Kubernetes must be 1.30 or later";

/// The answer to the forbidden write.
#[derive(Debug)]
enum Answer {
    Refused,
    Accepted,
    Unknown(kube::Error),
}

/// Waits until a forbidden write is refused. Meanwhile the replica is not ready, which its Pod shows.
pub(crate) async fn wait_until_limited(
    client: &Client,
    namespace: &str,
    metrics: &Metrics,
    readiness: &Readiness,
) {
    let secrets = Api::namespaced(client.clone(), namespace);
    metrics.set_writes_limited(false);
    for attempt in 0_u32.. {
        match try_forbidden_write(&secrets).await {
            Answer::Refused => break,
            Answer::Accepted => {
                readiness.set_unready(UNLIMITED);
                if attempt % LOG_EVERY == 0 {
                    tracing::error!("{UNLIMITED}");
                }
            }
            Answer::Unknown(error) => {
                readiness.set_unready("the API server did not say which Secrets this account may write");
                if attempt % LOG_EVERY == 0 {
                    tracing::warn!(error = %chain(&error), "cannot try a forbidden write, retrying");
                }
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    metrics.set_writes_limited(true);
}

/// Tries to create a Secret of a type that is not the coordinator's, which a dry run does not store.
async fn try_forbidden_write(secrets: &Api<Secret>) -> Answer {
    let secret = Secret {
        metadata: ObjectMeta {
            generate_name: Some("baremetal-coordinator-proof-".to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    match secrets.create(&parameters, &secret).await {
        Ok(_) => Answer::Accepted,
        Err(kube::Error::Api(status)) if is_refusal(&status) => Answer::Refused,
        Err(error) => Answer::Unknown(error),
    }
}

/// The policy refused the write. A role that allows no creation at all limits the account as well; a quota or
/// another webhook refuses this Secret alone.
fn is_refusal(status: &Status) -> bool {
    match status.code {
        403 => status.message.contains("cannot create resource"),
        422 => status.message.contains(POLICY),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use fake_apiserver::{FakeApi, Matching, OwnerReferences, Refusal, Rules, read_policies};
    use tokio::time::timeout;

    use super::*;

    const RIGHTS: &str = include_str!("../config/rbac.yaml");
    const EVERYWHERE: &str = include_str!("../config/all-namespaces.yaml");
    const NAMESPACE: &str = "elsewhere";
    const TIME_LIMIT: Duration = Duration::from_mins(2);

    /// Gives a user the roles of the coordinator, where an installer put them in this namespace.
    pub(crate) fn install_roles(fake: &FakeApi, user: &str, namespace: &str) {
        let rights = format!("{RIGHTS}---\n{EVERYWHERE}")
            .replace("namespace: baremetal-system", &format!("namespace: {namespace}"));
        let rules = Rules::of_service_account(&rights, namespace, "baremetal-coordinator");
        fake.authorize(user, rules.unwrap());
    }

    fn serve_roles() -> FakeApi {
        let fake = FakeApi::new();
        install_roles(&fake, "replica", NAMESPACE);
        fake
    }

    /// The policies as they are in the file, without a change for the namespace.
    pub(crate) fn install_policies(fake: &FakeApi) {
        for policy in read_policies(RIGHTS) {
            fake.put_back(policy, OwnerReferences::Drop).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn missing_policy_keeps_a_replica_unready() {
        let fake = serve_roles();
        let (client, metrics, readiness) = (fake.client("replica"), Metrics::default(), Readiness::default());
        let mut waits = Box::pin(wait_until_limited(&client, NAMESPACE, &metrics, &readiness));
        assert!(timeout(TIME_LIMIT, &mut waits).await.is_err(), "every Secret can be written");
        assert_eq!(readiness.reason().as_deref(), Some(UNLIMITED));
        assert!(metrics.encode_text().unwrap().contains("secret_writes_limited 0\n"));
        assert!(fake.look_at_all("secrets").is_empty(), "a dry run stores nothing");
        install_policies(&fake);
        timeout(TIME_LIMIT, waits).await.unwrap();
        assert!(metrics.encode_text().unwrap().contains("secret_writes_limited 1\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_api_server_proves_nothing() {
        let fake = serve_roles();
        install_policies(&fake);
        let (client, metrics, readiness) = (fake.client("replica"), Metrics::default(), Readiness::default());
        fake.faults().fail(Matching::any(), 3, Refusal::Unavailable);
        fake.faults().fail(Matching::any(), 3, Refusal::Internal);
        timeout(TIME_LIMIT, wait_until_limited(&client, NAMESPACE, &metrics, &readiness)).await.unwrap();
        let writes = fake.journal().counts_of("replica").requests;
        assert_eq!(writes, 7, "an answer that is no refusal is asked again");
    }

    #[test]
    fn quotas_and_webhooks_prove_nothing() {
        for (code, message, want) in [
            (
                422,
                "secrets \"x\" is forbidden: ValidatingAdmissionPolicy 'baremetal-coordinator-secrets' with binding \
                 'baremetal-coordinator-secrets' denied request: no",
                true,
            ),
            (
                403,
                "secrets is forbidden: User \"u\" cannot create resource \"secrets\" in API group \"\"",
                true,
            ),
            (403, "secrets \"x\" is forbidden: exceeded quota: few, requested: count/secrets=1", false),
            (403, "admission webhook \"others.example\" denied the request: no", false),
            (422, "secrets \"x\" is forbidden: ValidatingAdmissionPolicy 'others' denied request: no", false),
            (422, "Secret \"x\" is invalid: metadata.name: Invalid value", false),
            (500, "baremetal-coordinator-secrets", false),
        ] {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            assert_eq!(is_refusal(&status), want, "{code} {message}");
        }
    }
}
