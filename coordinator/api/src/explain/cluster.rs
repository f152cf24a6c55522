//! Reasons of `BaremetalCluster`.

use super::{Entry, act, fine, wait};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (
        EndpointMissing,
        act(
            "neither spec.controlPlaneEndpoint nor spec.controlPlaneLoadBalancer is set",
            "set spec.controlPlaneLoadBalancer of the BaremetalCluster",
        ),
    ),
    (EndpointKnown, fine("spec.controlPlaneEndpoint is set")),
    (EndpointReachable, fine("an API server answers at spec.controlPlaneEndpoint")),
    (AddressHeld, fine("a control-plane host holds the address; the message names it")),
    (
        HolderMissing,
        act(
            "no API server answers /readyz on any control-plane host: mostly etcd without a quorum",
            "look at the logs of kube-apiserver and etcd on the hosts; `baremetal-agent check-api` says what keeps a host from the address",
        ),
    ),
    (
        MembersMissing,
        wait(
            "no control-plane machine of the Cluster has a host yet",
            "none: it goes on with the first control-plane machine; `kubectl baremetal tree CLUSTER` shows the machines",
        ),
    ),
    (
        DutyUnconfirmed,
        wait(
            "a host is not attached, its image has an older agent, or its unit baremetal-agent-alive does not run",
            "none: a host confirms when it attaches; if it does not, look at `systemctl status baremetal-agent-alive` on it",
        ),
    ),
    (
        MemberFailed,
        act(
            "keepalived is not in the image or ended, or the host lost the address that it reported",
            "as the message says; use an image with keepalived",
        ),
    ),
    (NetworkDeviceFound, fine("every control-plane host has the interface")),
    (
        NetworkDeviceMissing,
        act(
            "networkDevice names no interface of a control-plane host; the message lists those that are there",
            "correct networkDevice of the BaremetalCluster or of the member in its pool",
        ),
    ),
    (
        NetworkDeviceIsSlave,
        act(
            "networkDevice names an interface that is part of a bond or bridge",
            "name the bond or bridge in networkDevice",
        ),
    ),
    (NetworkConfigAccepted, fine("address, router id and the addresses of the hosts fit together")),
    (
        NetworkUnknown,
        wait(
            "a control-plane host has not reported its network yet",
            "none: it goes on when the host attaches",
        ),
    ),
    (
        AddressMissing,
        act(
            "a control-plane host has no address of the family of the endpoint",
            "give the host an address of that family",
        ),
    ),
    (
        AddressTaken,
        act(
            "another BaremetalCluster has the same address and port, or a host has the address as its own",
            "delete one of the two clusters, or recreate this one with a free address",
        ),
    ),
    (
        RouterIdShared,
        act(
            "another cluster of the network has the same vrid; both work, unless other routers take part",
            "change spec.controlPlaneLoadBalancer.vrid of one of the two",
        ),
    ),
];
