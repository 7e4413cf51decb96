//! The closed table of codes: every reason a user can meet, with its meaning and a remedy. They are condition reasons,
//! event reasons, metric labels, what `kubectl berth explain` explains, and docs/reference/codes.md. Adding one is
//! allowed, renaming is not.

use std::{fmt, str::FromStr};

/// Where a code is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// Admission said no.
    Rejected,
    /// A job waits.
    Pending,
    /// A job, or part of it, was stopped.
    Stopped,
    /// A promise moved, was dropped, or a Berth was released.
    Cause,
    /// A condition or event tells of progress or trouble.
    Condition,
}

impl Met {
    /// Heading in the reference.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rejected => "Rejected",
            Self::Pending => "Pending",
            Self::Stopped => "Stopped",
            Self::Cause => "Causes",
            Self::Condition => "Conditions and events",
        }
    }
}

/// Not one of [`Code::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no code of Berth: docs/reference/codes.md lists them all")]
pub struct UnknownCode(String);

macro_rules! codes {
    ($($name:ident [$($met:ident)+] $meaning:literal, $remedy:literal;)+) => {
        /// One reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $name,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as objects, events and metrics show it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// What it says, in a line.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// What can be done about it, in a line.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)+ }
            }

            /// Where it is met.
            pub fn met(self) -> &'static [Met] {
                match self { $(Self::$name => &[$(Met::$met,)+],)+ }
            }
        }
    };
}

codes! {
    // One object's own faults.
    InvalidSpec [Rejected Condition] "A field's value is not accepted.", "Change the field the message names to a value it accepts.";
    InvalidName [Rejected] "The job's name cannot be a Service's name, or makes host names over 63 characters.", "Choose a shorter name of lower-case letters, digits and dashes that begins with a letter.";
    DuplicateRole [Rejected] "Two roles have the same name.", "Rename one of them.";
    UnknownRole [Rejected] "A policy or dependency names a role the job does not have.", "Name one of the job's roles.";
    DependencyCycle [Rejected] "Roles depend on each other in a circle, so none could start.", "Remove one of the dependencies.";
    TooManyPods [Rejected] "The job has more pods than one job may have.", "Split it, or use larger pods.";
    FloorAboveReplicas [Rejected] "minReplicas is larger than replicas, or below 1.", "Set minReplicas between 1 and replicas.";
    SliceDoesNotDivide [Rejected] "A slice's size does not divide replicas or minReplicas.", "Choose a size that divides both.";
    RuntimeTooLong [Rejected] "expectedRuntime is over maxRuntime, or maxRuntime over the queue's maxRuntimeLimit.", "Lower the value to the limit the message names.";
    GracePeriodTooLong [Rejected] "gracePeriod is over the queue's maxGracePeriod.", "Lower it, or ask the queue's owner to raise the limit.";
    TemplateUnsupported [Rejected] "The pod template has a field that a pod created on its node would silently ignore or break.", "Remove it and use what the message names instead.";
    UnknownField [Rejected] "The pod template has a field this version does not know; it would be lost.", "Correct the spelling, or remove the field.";
    NotSupported [Rejected] "The feature is not part of v1alpha1.", "Do without it for now.";
    // A job against the cluster.
    UnknownLevel [Rejected Pending] "No Topology has a level of that name.", "Name a level that kubectl get btopo shows, or node.";
    PreferredNotNarrower [Rejected] "The preferred level is not narrower than the required one.", "Name a narrower level, or remove one of the two.";
    SliceWiderThanRequired [Rejected] "A slice may spread over more than the job's required level allows the whole job.", "Name a level not wider than the required one.";
    UnknownQueue [Rejected Pending] "The queue does not exist.", "Name a queue that kubectl get bq shows, or have it made.";
    QueueNotLeaf [Rejected Pending] "The queue has children; jobs go to leaves only.", "Name one of its children.";
    QueueClosed [Rejected] "The queue is draining and takes no jobs.", "Use another queue, or wait until it is Open.";
    NamespaceNotAllowed [Rejected] "The queue does not take jobs of this namespace, or no jobs run in it at all.", "Use a queue that does, or ask its owner to select the namespace.";
    TooManyPending [Rejected] "The queue's maxPendingJobs are waiting already.", "Submit again when some have started.";
    UnknownPriorityClass [Rejected Pending] "The PriorityClass does not exist.", "Name one that kubectl get priorityclass shows.";
    PriorityClassNotAllowed [Rejected] "The queue does not allow the PriorityClass, or it is the system's.", "Use one of the classes the message names.";
    FloorExceedsQueueLimit [Rejected] "The gang's floor is more than the limit of its queue, or of a queue above.", "Lower the floor, or have the limit raised.";
    FloorExceedsEveryDomain [Rejected] "No domain of the required level could hold the gang's floor, even empty.", "Require a wider level, or lower the floor.";
    FloorExceedsPool [Rejected] "The whole pool could not hold the gang's floor, even empty.", "Lower the floor, or add nodes.";
    PodFitsNoNode [Rejected] "No node could hold one of the pods, even empty.", "Lower its requests, or correct its selectors and tolerations.";
    FieldImmutable [Rejected] "The field cannot change while the job holds nodes.", "Suspend the job, change it, resume it; or submit a new one.";
    ServiceNameTaken [Rejected Pending] "A Service of the job's name belongs to somebody else.", "Rename the job, or remove the Service.";
    BerthTooLarge [Rejected Pending] "The plan for this job does not fit into one object.", "Use fewer, larger pods.";
    VolumeUnsupported [Rejected Pending] "A volume cannot serve pods on several nodes, or cannot be made for a chosen node.", "Use a volume that many nodes can mount, or one bound in advance.";
    // Queues, topologies, berths.
    QueueParentMissing [Rejected Condition] "The parent queue does not exist.", "Make the parent first.";
    QueueCycle [Rejected Condition] "The queue would be its own ancestor.", "Choose another parent.";
    GuaranteeOverLimit [Rejected Condition] "A guarantee is above the limit of the same queue.", "Lower the guarantee, or raise the limit.";
    GuaranteesOverParent [Rejected Condition] "The children's guarantees are together more than the parent's.", "Lower one of them, or raise the parent's.";
    GuaranteesOverCluster [Condition] "All guarantees together are more than the cluster has.", "Lower some, or add nodes: until then not all can be kept.";
    QueueHasJobs [Rejected] "The queue has jobs of its own, so it cannot become a parent or go.", "Move or finish its jobs first.";
    QueueHasChildren [Rejected] "The queue has children, so it cannot go.", "Remove the children first.";
    NoLevels [Rejected] "The Topology names no level.", "Name at least one, or a preset.";
    DuplicateLevel [Rejected] "Two levels have the same name or label, or one is named node.", "Give each its own.";
    TopologyOverlap [Rejected Condition] "Two Topologies select the same node.", "Make their selectors exclude each other.";
    LevelInUse [Rejected] "A job names the level that would go.", "Keep the level until the jobs the message names have finished.";
    NotTheController [Rejected] "Berths and their pods are written by the controller alone.", "Change the TrainingJob; kubectl delete berth stops its job.";
    StaleLeader [Rejected] "The writer is no longer the leader.", "Nothing to do: the current leader goes on.";
    NotReady [Rejected] "Berth does not know the cluster yet.", "Try again in a few seconds.";
    // Waiting.
    Waiting [Pending Condition] "The job waits for its turn.", "Nothing to do; kubectl berth why tells more.";
    NoCapacity [Pending] "Not enough room is free for the gang's floor.", "Wait, or lower the floor.";
    NoDomainFits [Pending] "There is room, but not inside one domain of the required level.", "Wait, or require a wider level.";
    NoUsableNode [Pending] "Selectors, taints, cordons or ports leave no node for a pod.", "Correct the template, or make nodes usable again.";
    QueueLimit [Pending] "The queue, or one above, is at its limit.", "Wait, or have the limit raised.";
    LendingLimit [Pending] "The room is guaranteed to others, who do not lend it.", "Wait, or have the lending limit raised.";
    MaxRunningJobs [Pending] "The queue's maxRunningJobs are running.", "Wait, or have the number raised.";
    QueueHeld [Pending] "The queue is Held or Draining: nothing starts.", "Wait until it is Open.";
    NonPreemptibleNeedsGuarantee [Pending] "A job that may not be preempted starts only within guarantees, and they are in use.", "Wait, or set preemptible: true.";
    WaitingForPatience [Pending] "Room is free, but not in the preferred level, and patience has not run out.", "Wait, or lower topology.patience.";
    HeldByReservation [Pending] "The room is promised to a job that would be late otherwise.", "Wait, or set a maxRuntime that ends before.";
    WaitingForHead [Pending] "The queue is in strict order, and its first job cannot start.", "Wait, or have the queue backfill.";
    RoomBeingCleared [Pending] "The room is being freed for this job.", "Nothing to do: it starts when the victims are gone.";
    NamespaceQuota [Pending Cause] "A ResourceQuota of the namespace leaves no room.", "Wait, or have the quota raised.";
    TopologyUnknown [Pending] "Room is free only on nodes whose place in the network is not known.", "Have the nodes labelled, or ask for no level.";
    TopologyHeld [Pending Condition] "A mass change of topology labels is doubted; jobs that need a level wait.", "Check the labels: kubectl berth topology shows what changed.";
    RestartBackoff [Pending] "The job failed and waits before it starts again.", "Nothing to do; kubectl describe shows the failure.";
    RepairPending [Pending] "The job lost nodes and waits for its repair.", "Nothing to do: repairs go before new work.";
    PreviousIncarnationLeaving [Pending] "Pods of an earlier job of this name, or of its last incarnation, are not gone yet.", "Wait; delete pods by force if their node is lost.";
    VolumeMissing [Pending] "A claim the template names does not exist.", "Make the claim.";
    VolumeNotBound [Pending Cause] "A claim is not bound.", "See the claim's own events.";
    VolumeInUse [Pending] "A claim that one pod alone may use is used by another.", "Wait until that pod is gone, or use a claim that several pods can mount.";
    CanNeverRun [Pending Condition] "The job can no longer run on this cluster as it is; it holds nothing and blocks nobody.", "Change the job, or bring back what the message names.";
    SearchLimit [Pending] "The search for a placement stopped at its limit without an answer.", "Nothing to do: it is tried again; simpler slices help.";
    InvalidObject [Pending Condition] "The stored object cannot be read.", "Correct what the message names.";
    PodRefused [Pending Cause] "The API server refuses a pod of the job: policy, security level or limit range.", "Correct the template as the message says.";
    // Stopped.
    Preempted [Stopped] "A job of higher priority in the same queue took the room.", "Nothing to do: it starts again in its turn.";
    Reclaimed [Stopped] "The room was borrowed, and its owner wanted it back.", "Nothing to do: it starts again in its turn; within guarantee it would have stayed.";
    Failed [Stopped Condition] "The user's code failed.", "See status.lastFailure and the pod's log.";
    Suspended [Stopped Condition] "Its user suspended it.", "Set suspend: false to go on.";
    Deleted [Stopped] "It was deleted.", "Nothing to do.";
    RuntimeExceeded [Stopped Condition] "It ran into its maxRuntime.", "Raise maxRuntime, or save work and start again.";
    Drained [Stopped] "Its queue is draining, and a checkpoint was due.", "Nothing to do: it starts again when the queue is Open.";
    Shrunk [Stopped] "An elastic job gave surplus pods to others.", "Nothing to do: it grows again when room appears.";
    RolledBack [Stopped Cause] "The start could not be completed, and what had been made was removed.", "The message names what failed; it is tried again.";
    // Causes, each with the object it names.
    NodeLost [Stopped Cause Condition] "A node is gone or silent.", "Nothing to do: the job is repaired before new work.";
    NodeUnusable [Cause] "A node was cordoned, tainted, or lost capacity.", "Nothing to do.";
    TopologyChanged [Cause] "A node moved to another domain.", "Check its labels if that is not so.";
    ForeignPod [Cause] "A pod that is not ours took the room.", "Dedicate nodes with the taint berth.dev/dedicated.";
    Overrun [Cause] "A running job outlives the time it was planned for.", "Nothing to do.";
    QueueEdited [Cause] "A queue was changed.", "Nothing to do.";
    JobEdited [Cause] "The job itself was changed.", "Nothing to do.";
    HigherPriority [Cause] "A job of higher priority came to the same queue.", "Nothing to do: promises move by this for a limited time in all.";
    Entitled [Cause] "A job of another queue is within its guarantee.", "Stay within guarantee to keep promises firm.";
    Repair [Cause] "A running job's lost nodes are replaced first.", "Nothing to do.";
    StartRefused [Pending Cause Condition] "Kubelets refused the pods.", "See the pods' status; the nodes are avoided for a while.";
    Maintenance [Pending Cause] "The node is announced unavailable.", "Nothing to do: the plan goes around it.";
    PulledForward [Cause] "Room became free earlier.", "Nothing to do.";
    // Progress and trouble, as conditions and events.
    Reserved [Condition] "Nodes and a time are promised.", "Nothing to do.";
    Starting [Condition] "The pods are being made.", "Nothing to do.";
    Started [Condition] "All pods exist, and none was refused.", "Nothing to do.";
    Running [Condition] "All pods are ready.", "Nothing to do.";
    Resized [Condition] "An elastic job grew or shrank.", "Nothing to do.";
    NodeReplaced [Condition] "A lost node was replaced.", "Nothing to do.";
    Succeeded [Condition] "The job ended well.", "Nothing to do.";
    ChangeDeferred [Condition] "An edit would move somebody's promise and takes effect later.", "Nothing to do; suspend and resume the job to have it now.";
    TopologyViolated [Condition] "A node is no longer in the job's required domain; the job runs on.", "Check the node's labels.";
    UndoFailed [Condition] "Something that had to be removed could not be, and is retried.", "See the message; the room stays counted until it is gone.";
    MembersLost [Condition] "The gang runs with fewer pods than it should.", "Nothing to do: replacements are planned.";
    PlanRejected [Condition] "The independent checker refused a plan; it was dropped.", "Report it: this is a fault of Berth.";
    Ready [Condition] "All is well.", "Nothing to do.";
    Drifting [Condition] "Topology labels are changing.", "Nothing to do while changes are few.";
    SharedNodes [Condition] "Other schedulers may take the pool's nodes, so promises are not firm.", "Dedicate the nodes with the taint berth.dev/dedicated.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().find(|code| code.as_str() == text).copied().ok_or_else(|| UnknownCode(text.to_owned()))
    }
}

impl Code {
    /// `Code(object)`, as causes are written.
    pub fn of(self, object: impl fmt::Display) -> String {
        format!("{self}({object})")
    }
}

/// docs/reference/codes.md.
pub fn reference() -> String {
    let mut page = String::from(
        "<!-- Generated by `make crds`. Do not edit. -->\n# Codes\n\nEvery reason Berth gives, in conditions, events, metrics and `kubectl berth explain`. Codes are added, never renamed.\n",
    );
    for met in [Met::Rejected, Met::Pending, Met::Stopped, Met::Cause, Met::Condition] {
        page += &format!("\n## {}\n\n| code | meaning | remedy |\n|---|---|---|\n", met.title());
        for code in Code::ALL.iter().filter(|code| code.met().contains(&met)) {
            page += &format!("| `{code}` | {} | {} |\n", code.meaning(), code.remedy());
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_found_by_its_text_and_says_something() {
        for &code in Code::ALL {
            assert_eq!(code.as_str().parse(), Ok(code));
            assert!(code.meaning().ends_with('.') && code.remedy().ends_with('.'), "{code}");
            assert!(!code.meaning().contains('|') && !code.remedy().contains('|'), "{code}");
        }
        let distinct: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(distinct.len(), Code::ALL.len());
    }

    #[test]
    fn the_codes_that_users_already_rely_on_are_there() {
        for text in [
            "NoDomainFits",
            "NoCapacity",
            "QueueLimit",
            "WaitingForPatience",
            "HeldByReservation",
            "NamespaceQuota",
            "TopologyUnknown",
            "StartRefused",
            "RestartBackoff",
            "VolumeMissing",
            "CanNeverRun",
            "FloorExceedsEveryDomain",
            "NonPreemptibleNeedsGuarantee",
            "PreviousIncarnationLeaving",
            "ChangeDeferred",
        ] {
            assert!(text.parse::<Code>().is_ok(), "{text}");
        }
        assert_eq!(Code::Overrun.of("team-a/llama"), "Overrun(team-a/llama)");
    }
}
