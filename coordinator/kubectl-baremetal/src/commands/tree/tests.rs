use serde_json::json;

use super::*;
use crate::arguments::Output;
use crate::samples::server::{forbid, serve};
use crate::samples::{cluster_of_one, machine_with, ready};

#[tokio::test(start_paused = true)]
async fn watch_needs_no_more_than_list() {
    let (fake, cluster) = serve(&cluster_of_one(json!({}), machine_with(&[ready()]))).await;
    let asked_again = forbid(&fake, Kind::KubeadmControlPlane);
    let arguments =
        TreeArguments { cluster: "lab".to_owned(), watch: true, output: Output { output: Format::Text } };
    tokio::select! {
        ended = show_tree(&cluster, &arguments) => panic!("the watch ended: {ended:?}"),
        asked = asked_again => asked.unwrap(),
    }
}
