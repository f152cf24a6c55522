//! Everything but the hosts: a management cluster with its coordinator, and the
//! cluster that hosts join.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use control_plane::Workload;
use control_plane::directory::Directory;
use control_plane::parts::Parts;

use crate::forwarder::Forwarder;
use crate::progress::Progress;
use crate::site::{Managers, Served, Site};
use crate::switch;

pub use crate::site::{GUEST_COORDINATOR, GUEST_GATEWAY, Management, Reach};

/// Port of the workload cluster's API server at [`GUEST_GATEWAY`], and at a switch.
pub const GUEST_API: u16 = 6443;

/// Everything but the hosts.
pub struct Environment {
    /// The cluster that hosts join.
    pub workload: Arc<Workload>,
    site: Site,
    /// The address of that cluster at a switch.
    _api: Option<Forwarder>,
}

impl Deref for Environment {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Environment {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}

impl Environment {
    /// Starts it, with a line for each step.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start(reach: Reach, progress: &Arc<Progress>) -> anyhow::Result<Self> {
        Self::start_in(Arc::new(Directory::temporary()?), reach, &[], progress).await
    }

    /// Starts one in which simulated hosts become control planes too.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_for_control_planes(progress: &Arc<Progress>) -> anyhow::Result<Self> {
        Self::start_for_control_planes_in(Arc::new(Directory::temporary()?), progress).await
    }

    /// The same, with logs and files in `directory`.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_for_control_planes_in(
        directory: Arc<Directory>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        Self::start_with(directory, Reach::Loopback, Served::default(), Managers::Kubeadm, progress).await
    }

    /// Starts one that serves the kinds of Metal3. Simulated hosts become control
    /// planes too.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_for_metal3(
        directory: Arc<Directory>,
        reach: Reach,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let managers = match reach {
            Reach::Loopback => Managers::Kubeadm,
            Reach::Guests | Reach::Switch | Reach::Segments => Managers::Core,
        };
        let served = Served { has_metal3: true, ..Served::default() };
        Self::start_with(directory, reach, served, managers, progress).await
    }

    /// The same, with logs and files in `directory`, and a coordinator that is
    /// limited to `namespaces` where there are any.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_in(
        directory: Arc<Directory>,
        reach: Reach,
        namespaces: &[&str],
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let served = Served { namespaces, ..Served::default() };
        Self::start_with(directory, reach, served, Managers::Core, progress).await
    }

    /// Starts one whose coordinator has this in its environment.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_configured(
        environment: &[(String, String)],
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let directory = Arc::new(Directory::temporary()?);
        let served = Served { environment, ..Served::default() };
        Self::start_with(directory, Reach::Loopback, served, Managers::Core, progress).await
    }

    async fn start_with(
        directory: Arc<Directory>,
        reach: Reach,
        served: Served<'_>,
        managers: Managers,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let parts = Parts::from_environment()?;
        let workload = start_workload(&parts, &directory, reach, managers, progress).await?;
        let api = forward_api(reach, &workload).await?;
        let site = Site::start(directory, reach, served, managers, progress).await?;
        Ok(Self { workload, site, _api: api })
    }
}

/// QEMU forwards for guests with networks of their own.
async fn forward_api(reach: Reach, workload: &Workload) -> anyhow::Result<Option<Forwarder>> {
    if !matches!(reach, Reach::Switch | Reach::Segments) {
        return Ok(None);
    }
    let forwarder = Forwarder::start_at(workload.endpoint()).await?;
    forwarder.set_targets(vec![(Ipv4Addr::LOCALHOST, workload.control_plane().port()).into()]);
    Ok(Some(forwarder))
}

async fn start_workload(
    parts: &Parts,
    directory: &Directory,
    reach: Reach,
    managers: Managers,
    progress: &Progress,
) -> anyhow::Result<Arc<Workload>> {
    let files = directory.path().join("workload");
    // Its control planes are hosts then.
    if managers == Managers::Kubeadm {
        progress.step("workload cluster: etcd, kube-apiserver, kube-controller-manager, and nothing in it");
        return Ok(Arc::new(Workload::start_empty(parts, &files).await?));
    }
    progress.step("workload cluster: etcd, kube-apiserver, kube-controller-manager, kubeadm phases");
    let endpoint = match reach {
        Reach::Guests | Reach::Segments => SocketAddr::from((GUEST_GATEWAY, GUEST_API)),
        Reach::Switch => SocketAddr::from((switch::ADDRESS, GUEST_API)),
        Reach::Loopback => SocketAddr::from((Ipv4Addr::LOCALHOST, GUEST_API)),
    };
    Ok(Arc::new(Workload::start(parts, endpoint, Some(&files)).await?))
}
