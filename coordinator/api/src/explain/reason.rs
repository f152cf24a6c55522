//! Reasons of conditions, each with its cause and its next action: one table, so that a fact is
//! written once. `docs/reference/conditions.md` and `kubectl baremetal why` show these texts.

#![allow(clippy::doc_markdown, reason = "the texts are printed on terminals as they stand here")]

use strum::{EnumIter, EnumString, IntoEnumIterator as _, IntoStaticStr};

use super::{Explanation, act, fine, wait};

impl Reason {
    /// The text on the object.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Every reason, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }
}

reasons! {
    // Every kind.
    fine Available "nothing is in the way";
    wait NotDecided
        "a step before this one is not done yet"
        "none: the condition Ready names the step that is waited for";
    act Paused
        "the object has the annotation cluster.x-k8s.io/paused, or its Cluster has spec.paused"
        "remove the annotation, or set spec.paused of the Cluster to false";
    fine NotPaused "the object is reconciled";
    act ApiRequestFailed
        "the API server rejected a request of the coordinator: roles or admission policy of another version, a quota, a webhook"
        "correct what the message names; the request is repeated";
    act FieldUnsupported
        "a field asks for something that is not supported and cannot be ignored without harm; the message names the field"
        "remove or correct the field that the message names";
    act FieldWithoutEffect
        "fields are set that have no effect here"
        "remove the fields that the message names";
    fine FieldsSupported "every field that is set has an effect";

    // Machines and pools.
    act PoolMissing
        "spec.machineInventoryPoolRef of the machine names a pool that its namespace does not have"
        "create the MachineInventoryPool, or correct the name in the BaremetalMachineTemplate";
    act PoolExhausted
        "every host or address of the pool is in use or cannot be used; the condition Ready of a MachineInventoryPool counts its hosts by cause"
        "add a host to the pool, or a range to the IPPool; or free one, or correct what keeps a host from being used";
    act PoolOfOtherCluster
        "spec.clusterName of the pool names another Cluster than the one of the machine"
        "name another pool in the BaremetalMachineTemplate, or correct spec.clusterName of the pool";
    act MemberMissing
        "the pool lists a MachineInventory that does not exist"
        "boot the seed ISO on that host, or remove the entry from the pool";
    act MemberNotReady
        "a member of the pool cannot be used: it is not attached, not approved, failed, quarantined, abandoned, in deletion, has managed disks, or carries a node that no machine holds"
        "look at the member that the message names: `kubectl baremetal why machineinventory/HOST`";
    act MemberInAnotherPool
        "another pool of the namespace holds a member"
        "remove the host from one of the two pools";
    act HostnameShared
        "two members of the pool have one `hostname`, or one has the name of the other: the second node cannot join, or replaces the first"
        "give each entry of the pool a `hostname` of its own";
    fine MembersFound "every member of the pool exists and belongs to this pool alone";
    act SelectorInvalid
        "an expression of the selector has an unknown operator or value (spec.selector of a pool, spec.hostSelector of a Metal3Machine)"
        "correct the selector as the message says";
    wait OwnerWaiting
        "Cluster API has not set the owner reference yet, or the Cluster is not found"
        "none: Cluster API sets it; create a MachineDeployment or a control plane and not this object, and restore a Cluster that is missing";
    wait ClusterInfrastructureWaiting
        "Cluster API has not marked the infrastructure of the Cluster as provisioned yet"
        "none: the machine continues when the BaremetalCluster is ready; if it does not become ready, its conditions say why";
    fine Allocated "the machine holds a host";
    act InventoryMissing
        "the MachineInventory or BareMetalHost that the machine names was deleted; no other host is changed"
        "restore the MachineInventory or BareMetalHost, or remove the annotation of the machine that names it (baremetal.cluster.io/machine-inventory, or metal3.io/BareMetalHost)";
    wait BootstrapWaiting
        "the bootstrap provider has not written the bootstrap data Secret of the Machine yet"
        "none: the machine continues when the Secret exists; if it is not written, look at the bootstrap configuration of the Machine and at the control plane of the Cluster";
    act BootstrapInvalid
        "the bootstrap data is no cloud-config, is too large, mounts disks for data, is of k0s or MicroK8s, or names another host or providerID"
        "correct the bootstrap configuration (KubeadmConfigTemplate or the Secret), then delete the Machine";
    act BootstrapFilesNotKept
        "the bootstrap data writes files, users or time servers to paths that the OS image resets at each boot"
        "add the paths to the persistent paths of the OS image, or put the files into the image, then replace the Machine";
    act VersionMissing
        "spec.version of the Machine is empty, so that no image can be chosen"
        "set spec.version on the MachineDeployment or the control plane";
    act ImageCatalogMiss
        "the image catalog has no usable entry for spec.version of the Machine"
        "add the version to the ConfigMap elemental-image-catalog in the namespace of the coordinator, or correct spec.version";
    act ImageRegistryMissing
        "the image in the catalog names no registry, and the Cluster names none either"
        "name a registry in the catalog, or annotate the Cluster with cpaas.io/registry-address";
    act RegistrySecretInvalid
        "the Secret that the annotation baremetal.cluster.io/registry-secret names does not exist or has another form"
        "create or correct the Secret, or correct the annotation";
    wait PlanRunning
        "the host executes its plan"
        "none: `kubectl baremetal logs HOST --follow` shows the steps";
    fine PlanApplied "the host executed its plan and verified the result";
    fine Running "the plan was applied, and the node can join or has joined";
    wait Cleaning
        "the machine is in deletion, and the host removes the node"
        "none: the host is available again when the clean is done";
    act OwnerMismatch
        "the object was deleted by the garbage collector or by hand, while its Machine was not"
        "delete the Machine to have the host cleaned; where a restore changed UIDs, correct the owner reference first";
    act HostCarriesNoNode
        "the host of a running machine was cleaned or installed again by hand, so that it reports no node"
        "delete the Machine: a machine with a providerID never gets a second plan";

    // Nodes of the workload cluster.
    fine NodeFound "the Node of the machine is found and has the providerID";
    wait NodeWaiting
        "kubeadm or the kubelet has not registered the Node yet"
        "none: after fifteen minutes the reason is NodeOverdue";
    act NodeOverdue
        "kubeadm or the kubelet failed on the host, or the Node lacks the label that the message names"
        "look at cloud-init and the kubelet on the host's console; delete the Machine to try again";
    act NodeAmbiguous
        "several Nodes have the label or the providerID of the machine, for example a Node that a former installation left"
        "delete the Node that is not of this machine from the workload cluster";
    act NodeProviderIDUnsupported
        "the bootstrap data sets another provider-id on the kubelet, so that the Node has the providerID of something else"
        "remove the kubelet argument from the bootstrap configuration, then delete the Machine";
    act KubeconfigMissing
        "the namespace of the Cluster has no Secret CLUSTER-kubeconfig with the key `value`"
        "create it (type cluster.x-k8s.io/secret) where no control plane provider does";
    act KubeconfigInvalid
        "the Secret CLUSTER-kubeconfig holds no kubeconfig, or one that names files, programs or a proxy"
        "put certificates, keys and tokens themselves into the Secret";
    act WorkloadUnreachable
        "the API server of the workload cluster does not answer, or refuses the credentials"
        "check the control-plane endpoint and the Secret CLUSTER-kubeconfig; the request is repeated";

    // Hosts.
    wait HostStatementMissing
        "the host has not attached since it was registered, restored or moved, so that the node on it is unknown"
        "none: the host states its node when it attaches; if it stays away, check its power and console";
    act HostUnreachable
        "the host has had no connection to the coordinator for five minutes: power, network or agent"
        "check power, network and console of the host; the host is not touched, and continues when it attaches";
    act HostCarriesNode
        "the host carries a node, but no claim belongs to it: the owner annotations were lost, or a restored claim is older than the node"
        "restore the machine of the node, and the claim comes back on the statement of the host; otherwise have the host cleaned by `kubectl baremetal clean HOST --owner OWNER`";
    wait HostNotAvailable
        "the BareMetalHost that an operator named in the machine registers, is paused, has an error, or is used by another machine"
        "none: the machine waits for it; to have another host chosen, remove the annotation metal3.io/BareMetalHost";
    act SeveralHosts
        "the claim, the node or the plan of another host names the machine too, because an annotation was edited or a restored backup was not of one moment; a machine has one host"
        "set the annotation of the machine (baremetal.cluster.io/machine-inventory, or metal3.io/BareMetalHost) to the host that runs its node";
    act OwnerMissing
        "the machine of the claim was deleted without its finalizer, or names another host"
        "restore the machine; or have the host cleaned by `kubectl baremetal clean HOST --owner OWNER`";
    act Abandoned
        "the machine of the host was removed while the host was unreachable, so that the host was not cleaned"
        "repair the host: it is cleaned and released when it attaches; or power it off for good and delete the MachineInventory";
    act DuplicateIdentity
        "a disk was cloned or a virtual machine copied: two running systems have one key"
        "switch one of the two off, install it again, then remove the annotation baremetal.cluster.io/quarantined";
    act ApprovalPending
        "the MachineRegistration of the host has spec.approval: Manual, and no operator has approved the host"
        "compare spec.tpmHash with the identity on the host's console, then `kubectl baremetal approve NAME`";
    fine ApprovedByOperator "an operator set the annotation baremetal.cluster.io/approval";
    fine ApprovedAutomatically "the MachineRegistration admits hosts by their token";
    act Revoked
        "an operator shut the host out by the annotation baremetal.cluster.io/approval: Revoked"
        "to admit the host again: `kubectl baremetal approve NAME`; else delete the MachineInventory";
    fine Hardware "the identity key is in a TPM, and a CA in the Secret tpm-ca signed its certificate";
    fine Unverified "the identity key is in a TPM, whose certificate was not verified because the namespace has no Secret tpm-ca";
    fine Emulated "the identity key is a file: a copy of the disk has the same identity";
    wait Installing
        "the live system writes the system to the disk"
        "none: the install takes some minutes";
    act InstallWaiting
        "no disk can be chosen without doubt, or the install failed three times since the host booted"
        "as the message says; to name the disk: `kubectl baremetal install-on NAME --device /dev/disk/by-id/…`, which sets the annotation baremetal.cluster.io/install-device";
    wait InstallFailed
        "a command of the install failed; the install is repeated, three times at most"
        "none: after the third attempt the reason is InstallWaiting";
    fine InstallDone "the system is on the disk, and the installed system has attached";
    act LiveBootAfterInstall
        "a seed ISO was booted on an installed host; its disk was left alone"
        "switch the host off, remove the medium, and switch it on; to install again: `kubectl baremetal reinstall NAME`";
    act BootOrderRefused
        "the firmware did not take the boot order that puts the installed disk first; a seed ISO that stays attached may be booted again"
        "switch the host off, take the seed ISO out, switch it on; then put the disk first in the firmware's boot order, and delete old entries there if it has no room";
    act NetworkInvalid
        "spec.network or spec.observedNetwork of the host cannot work; the message names interface or keyfile"
        "correct it, or give another network in spec.network, which wins";
    fine NetworkAsIntended "the host has the network that every plan replays";
    wait KernelStateLeft
        "the former node left addresses, links, rules or devices in the kernel that the clean could not remove"
        "none: the host is rebooted once, and is free when it is back";
    act NetworkChanged
        "the network that the host reports differs from the one that every plan replays"
        "correct the host, or accept its network: `kubectl annotate machineinventory NAME baremetal.cluster.io/accept-observed-network=`";
    act NetworkPartsNotReplayed
        "the host registered with a network of which no plan replays some parts, such as a parameter of a bond that network-config does not have"
        "if the host needs them, give its network in spec.network of the MachineInventory; parameters of a bond need keyfiles and an image with NetworkManager";
    act LabelsKept
        "the MachineRegistration would give the host other labels than it has; they stay as they are once a plan was written for the host, because pools select by labels"
        "if the host is to have the labels of the message: `kubectl label --overwrite machineinventory NAME KEY=VALUE`; else correct the MachineRegistration";
    act PlatformBelowMinimum
        "kernel, control groups, systemd or SELinux of the running system are not as the agent and Kubernetes need them"
        "build the base ISO and the OS image from a newer distribution, or switch SELinux to permissive in them: docs/versions.md";
    wait RebootWaiting
        "the host executes a plan, is not admitted, or has never attached, so that it cannot be asked to reboot yet"
        "none: the host is asked to reboot when it can be; to withdraw the request, remove its annotation";
    wait RebootInProgress
        "the agent of the host was asked to reboot it, and the host is not back yet"
        "none: an orderly shutdown is forced after three minutes; if the host stays away, look at its console";
    fine RebootDone "the host attached from another boot; the request is done until its annotation is written again";
    fine SettingsCurrent "the host attached by the newest URL and authorities of the coordinator";
    wait SettingsAnnounced
        "newer URL or authorities were sent to the host"
        "none: the host confirms them when it attaches again";
    act SettingsRefused
        "the host could not attach by the newer URL or authorities and kept its former ones"
        "make the new URL reachable from the host with a certificate that the new authorities sign";
    act StateUnwritable
        "the agent cannot write its state, because the persistent partition of the host is full, read-only or failing; the host stays attached"
        "free space or repair the disk; the clean of a Machine that is deleted frees the space of its node";
    act JournalLost
        "the journal of the host is damaged or written by another version of the agent, so that the host refuses every plan"
        "find out by `kubectl baremetal describe` what the host carries, then run the command of the message, which removes the journal";
    fine AgentAsWanted "the host attached with the agent version that the annotation agent-version names";
    wait AgentUpdateWaiting
        "the host is away, executes a plan, or other hosts are updated first"
        "none: the agent is announced when the host is attached and idle";
    wait AgentUpdateSent
        "the agent was announced: the host downloads it, starts it, and keeps it once it has attached"
        "none: after five minutes without the new agent the former one is back, and says why";
    act AgentUpdateFailed
        "the host did not take the agent, or the agent did not attach; the former one runs"
        "correct the cause that the message names, then ask again: `kubectl annotate machineinventory NAME baremetal.cluster.io/agent-version-`, then set it again";
    act AgentUpdateUnavailable
        "the coordinator serves another version, or the host runs a newer agent or one that takes no updates"
        "as the message says: upgrade the coordinator or the OS image, or correct the annotation baremetal.cluster.io/agent-version";

    // Plans of hosts, and the failures that hosts report.
    wait WaitingForPlan
        "the host is being installed, or executes its first plan"
        "none: `kubectl baremetal logs NAME` shows the steps";
    fine PlanSuccessfullyApplied "the host is attached, and its newest plan is done or it never had one";
    act PlanFailure
        "a step of the newest plan failed; PlanApplied of the machine has the failure"
        "`kubectl baremetal logs NAME` shows the output; correct the cause, then delete the Machine";
    act PlanFailed
        "a step failed, and the host did not classify the failure"
        "`kubectl baremetal logs HOST` shows the output; correct the cause, then delete the Machine";
    wait CustomPlanWaiting
        "the host executes another plan, is not attached, or is neither free nor a running node"
        "none: the plan runs when the host is free for it";
    act CustomPlanInvalid
        "the Secret that the annotation custom-plan names is missing, or holds a plan that hosts do not execute"
        "correct the Secret as the message says, or remove the annotation";
    act PlanSecretMissing
        "the Secret with the plan of the host was deleted"
        "restore the Secret, or delete the Machine; find out what deleted it";
    act PlanSecretInvalid
        "the Secret with the plan of the host was overwritten with something else"
        "restore the Secret, or delete the Machine; find out what writes it";
    act PlanSecretAltered
        "the plan in the Secret is not the one that was announced to the host"
        "restore the Secret, or delete the Machine; find out what writes it";
    act CommandFailed
        "a command of the step ended with an error"
        "`kubectl baremetal logs HOST` shows its output; correct the cause, then delete the Machine";
    act StepTimedOut
        "the step did not end before its deadline; the message says what it waited for"
        "correct the cause on the host, then delete the Machine";
    act NoSpace
        "a file system of the host has no space left"
        "free space on the host, then delete the Machine";
    act BootFallback
        "the new image did not boot, or its agent did not run, and the boot loader started the former system"
        "correct the image in the catalog, then delete the Machine";
    act CleanupMissing
        "early boot did not wipe the former node, or left directories that are mount points"
        "look at `journalctl -u baremetal-agent-boot` on the host, unmount what is listed, then delete the Machine";
    act NetworkReverted
        "with the network of the plan the host did not reach the coordinator, and went back to its former one"
        "correct spec.network of the MachineInventory or the cabling, then delete the Machine";
    act PathsNotKept
        "the persistent paths of the image lack directories of a node, which would be gone at the next reboot; no node was started"
        "add the listed paths to the persistent paths of the image, push it, then delete the Machine";
    act CloudInitFailed
        "cloud-init ended with errors, mostly of kubeadm"
        "look at /var/log/cloud-init-output.log on the host, correct the bootstrap data, then delete the Machine";
    act PlanRefused
        "the agent does not know a step of the plan, or the plan is not for this host"
        "bring the agent in the image to the version of the coordinator, then delete the Machine";
    act InputOutputFailed
        "a disk of the host reported errors"
        "replace the disk, install the host again, then delete the Machine";

    // MachineRegistrations.
    fine SuccessfullyCreated "the registration has a token, and hosts can register";
    act DuplicateToken
        "two MachineRegistrations have one token"
        "change spec.token of one of the two, or remove it";
    act TokenExpired
        "spec.tokenExpiresAt is over: hosts without an inventory are refused"
        "to admit new hosts, set spec.tokenExpiresAt to a later time, or remove it";
    act SoftwareKeysApproved
        "hosts may prove a key in a file and wait for no approval: the registration URL alone admits a host"
        "set spec.approval: Manual, or demand a TPM by emulate-tpm: false; or limit the token by spec.tokenExpiresAt and spec.maxHosts";
    act UnverifiedTpmsApproved
        "hosts prove a TPM that no named vendor has certified, as a program can, and wait for no approval: the registration URL alone admits a host"
        "put the CAs of the TPM vendors into the Secret tpm-ca and change the MachineRegistration, or set spec.approval: Manual; or limit the token by spec.tokenExpiresAt and spec.maxHosts";
    act TokenAdmitsMembers
        "hosts of a MachineRegistration that admits by its token alone get labels that spec.selector of the pool matches: whoever has the registration URL brings a host into the pool, and that host gets bootstrap data"
        "set spec.approval: Manual of the MachineRegistration, or select by a label that operators alone write";
    fine AdmissionGuarded "new hosts wait for an operator, or prove a TPM of a named vendor";
    act HostRefused
        "a host with the token of this registration was refused; the message names code and host"
        "as the message says; the codes are in docs/reference/events.md";
    fine NoHostRefused "no host was refused within half an hour";

    // SeedImages.
    act RegistrationNotFound
        "spec.registrationRef names no MachineRegistration, one that is not ready, or one of another namespace that does not grant it"
        "create or correct the MachineRegistration, or the reference";
    fine ResourcesSuccessfullyCreated "the ISO can be downloaded";
    wait SeedImageBuildOngoing
        "the base ISO is being fetched or searched, by the leader or by the replicas that the message names"
        "none: this takes as long as the download; if it does not end, the logs of these replicas have the cause";
    act SeedImageBuildFailure
        "the ISO cannot be made; the condition Ready has the cause as its reason"
        "as the message says";
    fine SeedImageBuildSuccess "the ISO was made and can be downloaded";
    fine SeedImageBuildDeadline "spec.cleanupAfterMinutes is over, and the download is closed; spec.retriggerBuild: true opens another one";
    act BaseImageInvalid
        "the text of spec.baseImage, the image or the ISO in it is not usable; file:/// needs --base-image-directory"
        "correct spec.baseImage as the message says";
    act BaseImageHostUnknown
        "DNS of the coordinator has no address of the registry or server"
        "correct spec.baseImage, or DNS of the coordinator";
    act BaseImageUnreachable
        "the server of the base refuses connections or answers with an error"
        "the log of the coordinator has the cause; the fetch is repeated within thirty seconds";
    act BaseImageUntrusted
        "the certificate of the server is signed by a private authority, or is for another name"
        "put the authority into a Secret under ca.crt and name it in spec.baseImageCASecret";
    act BaseImageUnauthorized
        "the registry demands credentials, or those of spec.baseImagePullSecret are wrong; many registries answer so for images that do not exist"
        "create a Secret of type kubernetes.io/dockerconfigjson and name it in spec.baseImagePullSecret";
    act BaseImageSecretInvalid
        "spec.baseImagePullSecret or spec.baseImageCASecret names a Secret that is missing or of another form"
        "create or correct the Secret that the message names";
    act BaseImageNotFound
        "the registry has no such tag or digest, or the directory no such file"
        "push the image, or correct spec.baseImage";
    act BaseImageDigestMismatch
        "the base has another digest than spec.baseImageDigest, or the registry sent other bytes"
        "correct spec.baseImageDigest, or find out what changed the base";
    act BaseImageWithoutISO
        "no layer of the image has an ISO 9660 file"
        "build the image with the ISO in /elemental-iso/";
    act BaseImageWithSeveralISOs
        "the layers of the image have several ISO 9660 files"
        "build the image with one ISO in /elemental-iso/";
    act BaseImagePlatformMismatch
        "the image, or spec.targetPlatform, is not for the platform of the coordinator's agent"
        "name an image for the platform in the message in spec.baseImage, and correct spec.targetPlatform";
    act BaseImageTooLarge
        "ISO and layers have more bytes than --base-image-size of the coordinator allows"
        "raise --base-image-size, or use a smaller image";
    act BaseImageTimedOut
        "the base did not arrive within --base-image-timeout of the coordinator"
        "raise --base-image-timeout, or use a nearer registry; the fetch is repeated";
    act BaseImageFetcherUnavailable
        "the process that fetches base images for the coordinator does not answer, or ended in the middle"
        "see state and log of the container base-images of the coordinator; the fetch is repeated within thirty seconds";
    fine BaseImageListed "the image catalog has an image of this repository and tag";
    act BaseImageUnlisted
        "no entry of the image catalog has the repository of the base without -iso, and its tag: hosts are installed with a system that no machine gets"
        "correct spec.baseImage, or add the image to the image catalog; the ISO can be downloaded meanwhile";

    // BaremetalClusters.
    act EndpointMissing
        "neither spec.controlPlaneEndpoint nor spec.controlPlaneLoadBalancer is set, and the Cluster has no endpoint yet"
        "set spec.controlPlaneLoadBalancer of the BaremetalCluster, or wait until the control plane provider sets spec.controlPlaneEndpoint of the Cluster";
    fine EndpointKnown "spec.controlPlaneEndpoint is set";
    fine EndpointReachable "an API server answers at spec.controlPlaneEndpoint";
    fine EndpointElsewhere
        "the server that the Secret CLUSTER-kubeconfig names answers, and it is another one than spec.controlPlaneEndpoint, which is not asked; both may lead to one API server";
    fine AddressHeld "a control-plane host holds the address of the endpoint; the message names the host";
    act HolderMissing
        "no API server answers /readyz on any control-plane host, mostly because etcd has no quorum; no host holds the address"
        "look at the logs of kube-apiserver and etcd on the hosts; `baremetal-agent check-api` says what keeps a host from the address";
    wait MembersMissing
        "no control-plane machine of the Cluster has a host yet"
        "none: the endpoint comes with the first control-plane machine; `kubectl baremetal tree CLUSTER` shows the machines";
    wait DutyUnconfirmed
        "a host has not confirmed that it serves the endpoint: it is not attached, its image has an older agent, or its unit baremetal-agent-alive does not run"
        "none: a host confirms when it attaches; if it does not, look at `systemctl status baremetal-agent-alive` on it";
    act MemberFailed
        "a host does not serve the endpoint: keepalived is not in the image or ended, or the host lost the address that it reported"
        "as the message says; use an image with keepalived";
    fine NetworkDeviceFound "every control-plane host has the interface";
    act NetworkDeviceMissing
        "networkDevice names no interface of a control-plane host; the message lists those that are there"
        "correct networkDevice of the BaremetalCluster or of the member in its pool";
    act NetworkDeviceIsSlave
        "networkDevice names an interface that is part of a bond or bridge"
        "name the bond or bridge in networkDevice";
    fine NetworkConfigAccepted "address, router id and the addresses of the hosts fit together";
    wait NetworkUnknown
        "a control-plane host has not reported its network yet"
        "none: the host reports its network when it attaches";
    act AddressMissing
        "a control-plane host has no address of the family of the endpoint"
        "give the host an address of that family";
    act AddressTaken
        "another BaremetalCluster has the same address and port, or a host has the address as its own"
        "delete one of the two clusters, or recreate this one with a free address";
    act RouterIdShared
        "another cluster of the network has the same vrid; both work, unless other routers take part"
        "change spec.controlPlaneLoadBalancer.vrid of one of the two";

    // Kinds of Metal3 and their addresses.
    act AllocationFailed
        "the IPPool is missing, in deletion or invalid, or the annotation ipAddress asks for an address that it cannot allocate"
        "as the message says";
    act PoolInvalid
        "start, end, subnet or prefix of the IPPool give no address, its ranges share addresses, or an address in use is in none of them"
        "correct the field that the message names";
    act InventoryTaken
        "a pool, a machine or another BareMetalHost has the inventory that the BareMetalHost names"
        "take the inventory out of the pool, or name another one in the annotation of the BareMetalHost";
    act InventoryUnnamed
        "the annotation baremetal.cluster.io/machine-inventory was removed or changed while the BareMetalHost had its inventory"
        "write the annotation again with the name in the message; to part the two, delete the BareMetalHost";
    wait WaitingForMetal3MachineOwnerRef
        "Cluster API has not set the owner reference of the Metal3Machine yet"
        "none: create a MachineDeployment or a control plane and not this object";
    wait WaitingforMetal3Cluster
        "the Cluster names no Metal3Cluster, or that does not exist"
        "none: the machine continues when the Metal3Cluster exists";
    wait WaitingForClusterInfrastructureReady
        "the Metal3Cluster is not ready yet"
        "none: the conditions of the Metal3Cluster say what is missing";
    wait WaitingForBootstrapData
        "the Machine has no bootstrap data Secret yet"
        "none: the machine continues when the bootstrap provider has written the Secret";
    fine AssociateBareMetalHostSuccess "the machine has a BareMetalHost";
    act NoHostAvailable
        "every BareMetalHost of the namespace is used, excluded by the selector, or cannot be used; the Event counts them by cause"
        "free a BareMetalHost, or create one that names an inventory";
    act WaitingForMetal3Data
        "the Metal3DataTemplate is missing, a pool has no address, or a value does not exist"
        "as the message says; see also status.errorMessage of Metal3Data and IPClaim";
    fine Metal3DataSecretsReady "meta-data and network data are rendered";
    fine SecretsSetExternally "no Metal3DataTemplate is named, and the host runs";
    fine AssociateMetal3MachineMetaDataSuccess "the data for the host exists, or none is asked for";
    wait HostNotProvisioned
        "the host executes its plan"
        "none: the conditions of the BareMetalHost show the progress";
    act LabelPrefixInvalid
        "the annotation metal3.io/metal3-label-sync-prefixes of the Metal3Cluster names a prefix that is no DNS subdomain"
        "correct the annotation; the message names the prefix";
    fine LabelsCurrent "the labels of the host with the prefixes asked for are on its Node";
    wait MachinesLeft
        "the Metal3Cluster was deleted before the machines of its Cluster"
        "none where the Cluster is deleted too: the deletion ends when the Machines are gone; else delete them";
    wait RemediationRunning
        "a MachineHealthCheck found the node unhealthy, and the host is about to reboot"
        "none: the condition Rebooted of the BareMetalHost shows the progress";
    wait RemediationWaiting
        "the host has rebooted, and its node is not healthy yet"
        "none: after spec.strategy.timeout the host is rebooted again, or the Machine is given up";
    act RemediationRefused
        "spec.online of the BareMetalHost is false"
        "set spec.online of the BareMetalHost to true, then delete the Metal3Remediation";
    act RemediationExhausted
        "the node did not become healthy within spec.strategy.timeout, spec.strategy.retryLimit times"
        "repair the host, then remove the annotation capi.metal3.io/unhealthy of its BareMetalHost";
    fine RemediationEnded "the Machine is in deletion, and its host is released";
    act RemediationHostMissing
        "the MachineHealthCheck counts a Machine as unhealthy that has no host yet"
        "see the conditions of the Metal3Machine; a longer nodeStartupTimeoutSeconds gives it more time";
}
