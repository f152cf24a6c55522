use serde_json::json;

use super::*;
use crate::samples::{
    clean_plan, cluster_of_one, condition, fleet, held_by, id, machine_with, now, object, plan_secret, ready,
    set_plan,
};
use crate::view::read_plan;

fn plain(branch: &Branch, has_bars: bool) -> String {
    anstream::adapter::strip_str(&format_tree(branch, has_bars)).to_string()
}

#[test]
fn running_plan_is_drawn_step_by_step() {
    let mut body = held_by("m");
    set_plan(&mut body, &clean_plan(), &json!({ "step": { "name": "stop-containerd", "attempt": 2 } }));
    let host = object(Kind::MachineInventory, "h", body);
    let plan = read_plan(&host, Ok(Some(&plan_secret(&[])))).unwrap();
    let machine =
        json!({ "status": { "conditions": [ready()], "phase": "Running", "nodeRef": { "name": "n" } } });
    let running = condition("Ready", "False", "PlanRunning", "executes its plan");
    let mut objects = cluster_of_one(machine, machine_with(&[running]));
    objects.push(host);
    let fleet = fleet(objects);
    let cluster = fleet.get(&id(Kind::Cluster, "lab")).unwrap();
    let tree = draw_tree(&fleet, cluster, &|_| Some(draw_plan(&plan)), now());
    let want = "\
cluster/lab  NotAvailable: * WorkersAvailable: * MachineDeployment workers
├─ baremetalcluster/lab  ready
└─ machinedeployment/workers  NotAvailable: 0 of 1
   └─ machine/m  Running v1, Node n
      └─ baremetalmachine/m  PlanRunning: executes its plan
         └─ machineinventory/h  PlanRunning: the host executes its clean plan: step stop-containerd, attempt 2
";
    let text = plain(&tree, false);
    assert!(text.starts_with(want.trim_end()), "{text}");
    assert!(text.contains("Running 2/7"), "{text}");
    assert!(text.contains("stop-containerd  running, attempt 2"), "{text}");
    assert!(plain(&tree, true).contains("███░░░░░░░░░ 2/7"), "{}", plain(&tree, true));
}

#[test]
fn what_is_missing_is_drawn() {
    let objects = cluster_of_one(json!({ "status": { "conditions": [ready()] } }), machine_with(&[ready()]));
    let fleet = fleet(objects);
    let tree = draw_tree(&fleet, fleet.get(&id(Kind::Cluster, "lab")).unwrap(), &|_| None, now());
    assert!(plain(&tree, false).contains("machineinventory/h  does not exist"), "{}", plain(&tree, false));
}
