//! Hosts of a control plane of three lose their power while a client writes through the endpoint.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::Api;

use super::endpoint::{EndpointClient, Outage};
use super::{ClusterOfHosts, hosts};

/// Asks the member of etcd on a host: prints `true` where it leads.
const IS_LEADER: &str = "etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/kubernetes/pki/etcd/ca.crt \
    --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt --key /etc/kubernetes/pki/etcd/healthcheck-client.key \
    endpoint status --write-out json | jq '.[0].Status | .leader == .header.member_id'";

impl ClusterOfHosts<'_> {
    /// Kills the holder of the endpoint `count` times.
    pub async fn lose_holders(&mut self, count: usize) -> anyhow::Result<()> {
        self.progress.step(&format!("the holder of the endpoint loses its power, {count} times"));
        let client = self.endpoint_client().await?;
        let mut outages = vec![];
        for _ in 0..count {
            let holder = self.await_holder().await?;
            let outage = self.lose(holder, &client).await?;
            self.progress.detail(&format!("host {holder} was lost: {}", describe(outage)));
            outages.push(outage);
        }
        self.proven.push(format!("the holder lost its power {count} times: {}", summarize(&outages)));
        Ok(())
    }

    /// Kills the host whose member of etcd leads.
    pub async fn lose_leader(&mut self) -> anyhow::Result<()> {
        self.progress.step("the host with the leader of etcd loses its power");
        let client = self.endpoint_client().await?;
        let leader = self.find_leader().await?;
        let outage = self.lose(leader, &client).await?;
        self.proven.push(format!("the host of etcd's leader lost its power: {}", describe(outage)));
        Ok(())
    }

    /// All hosts lose their power and come back, while there is no management cluster.
    pub async fn lose_all(&mut self) -> anyhow::Result<()> {
        self.progress.step("all hosts lose their power and return, without the management cluster");
        let client = self.endpoint_client().await?;
        // Its kubeconfig is in the management cluster.
        let nodes = Api::all(self.workload().await?);
        let all = [&*self.members, &[hosts::WORKER]].concat();
        self.site.stop_management()?;
        for number in &all {
            self.hosts.set_power(*number, false).await?;
        }
        ensure!(!client.write().await, "a cluster without power takes a write");
        for number in &all {
            self.hosts.set_power(*number, true).await?;
        }
        self.await_ready_members(&client).await?;
        self.await_holder().await?;
        self.await_ready_nodes(&nodes).await?;
        self.progress.step("the management cluster returns");
        self.site.resume_management().await?;
        self.await_available(self.release, self.release).await?;
        self.proven.push(
            "all hosts lost their power: the cluster came back without the management cluster".to_owned(),
        );
        Ok(())
    }

    /// Cuts the power of a control plane, waits until the others take a write, and waits for its return.
    async fn lose(&mut self, number: u8, client: &EndpointClient) -> anyhow::Result<Outage> {
        let hosts = &mut self.hosts;
        let outage = client.measure_outage(async || hosts.set_power(number, false).await).await?;
        self.hosts.set_power(number, true).await?;
        self.await_ready_members(client).await?;
        Ok(outage)
    }

    async fn find_leader(&self) -> anyhow::Result<u8> {
        for number in &self.members {
            if self.hosts.run_on(*number, IS_LEADER).await?.trim() == "true" {
                return Ok(*number);
            }
        }
        None.context("no member of etcd leads")
    }
}

fn describe(outage: Outage) -> String {
    format!(
        "connected again after {:.2} s, wrote again after {:.2} s",
        outage.connection.as_secs_f64(),
        outage.write.as_secs_f64()
    )
}

/// The distribution of both times.
fn summarize(outages: &[Outage]) -> String {
    let connections = outages.iter().map(|outage| outage.connection).collect();
    let writes = outages.iter().map(|outage| outage.write).collect();
    format!("first connection after {}; first write after {}", distribute(connections), distribute(writes))
}

fn distribute(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let seconds = |share| at(share).map_or(f64::NAN, Duration::as_secs_f64);
    format!(
        "{:.2} s (shortest), {:.2} s (median), {:.2} s (p90), {:.2} s (longest)",
        seconds(0),
        seconds(50),
        seconds(90),
        seconds(100)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_its_ends() {
        let times = (1..=20).rev().map(Duration::from_secs).collect();
        let text = distribute(times);
        assert_eq!(text, "1.00 s (shortest), 11.00 s (median), 19.00 s (p90), 20.00 s (longest)");
        assert!(distribute(vec![Duration::from_millis(1500)]).starts_with("1.50 s (shortest), 1.50 s"));
    }
}
