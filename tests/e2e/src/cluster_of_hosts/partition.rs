//! The holder of the endpoint is cut off from the others, and both sides try to write.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use tokio::time::{Instant, sleep};

use super::{ADDRESS, ClusterOfHosts, DEADLINE, hosts};
use crate::requests::retry;

/// Writes through the endpoint from a control plane, ten times. Prints the code of each answer.
const WRITE_INSIDE: &str = "cd /etc/kubernetes/pki; for number in 0 1 2 3 4 5 6 7 8 9; do \
    curl --silent --output /dev/null --write-out '%{http_code}\\n' --max-time 3 --cacert ca.crt \
    --cert apiserver-kubelet-client.crt --key apiserver-kubelet-client.key --header 'Content-Type: application/json' \
    --data \"{\\\"apiVersion\\\":\\\"v1\\\",\\\"kind\\\":\\\"ConfigMap\\\",\\\"metadata\\\":{\\\"name\\\":\\\"cut-off-$number\\\"}}\" \
    https://@ADDRESS@:6443/api/v1/namespaces/default/configmaps || true; sleep 1; done";

impl ClusterOfHosts<'_> {
    /// The holder loses its cable: the others serve writes, and it serves none.
    pub async fn partition_holder(&mut self) -> anyhow::Result<()> {
        self.progress.step("the holder of the endpoint is cut off from the others");
        let client = self.endpoint_client().await?;
        let holder = self.await_holder().await?;
        let outage = client.measure_outage(async || hosts::set_plugged(holder, false)).await?;
        let script = WRITE_INSIDE.replace("@ADDRESS@", ADDRESS);
        let (inside, outside) = tokio::join!(self.hosts.run_on(holder, &script), async {
            (client.write().await, client.write().await)
        });
        let inside = inside?;
        ensure!(!inside.contains("201"), "the holder that was cut off served writes:\n{inside}");
        ensure!(outside.0 || outside.1, "the others serve no writes");
        let end = Instant::now() + DEADLINE;
        while self.hosts.list_holders(ADDRESS).await?.contains(&holder) {
            ensure!(Instant::now() < end, "the host that was cut off keeps the address");
            sleep(Duration::from_secs(1)).await;
        }
        let others = self.await_holder().await?;
        ensure!(others != holder && client.write().await, "host {others} holds the endpoint");
        hosts::set_plugged(holder, true)?;
        self.await_ready_members(&client).await?;
        let maps: Api<ConfigMap> = Api::namespaced(self.workload().await?, "default");
        let found = retry("list", async || maps.list(&ListParams::default()).await).await?.items;
        let names = found.iter().filter_map(|map| map.metadata.name.as_deref());
        let lost: Vec<_> = names.filter(|name| name.starts_with("cut-off")).collect();
        ensure!(lost.is_empty(), "writes of the host that was cut off are there: {lost:?}");
        self.proven.push(format!(
            "the holder was cut off: it served no write and gave the address up, and the others took writes after {:.2} s",
            outage.write.as_secs_f64()
        ));
        Ok(())
    }
}
