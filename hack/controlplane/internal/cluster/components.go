package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"berth.dev/hack/controlplane/internal/proc"
	"berth.dev/hack/controlplane/internal/tools"
)

// serviceRange holds cluster IPs. Nothing routes them; its first address is in the server's certificate.
const serviceRange, firstServiceIP = "10.96.0.0/16", "10.96.0.1"

// podRange is where KWOK takes pod addresses from.
const podRange = "10.128.0.0/9"

// fakeNode is the label by which KWOK knows its nodes; without it a node is left alone. (By the annotation of the same
// name it would go on managing a node that has lost it.)
const fakeNode = "kwok.x-k8s.io/node=fake"

// controllers that a Berth cluster relies on, by name: fewer than all of them start faster and take less memory.
// No scheduler, no cloud, no certificates, no volumes attached.
var controllers = []string{
	"clusterrole-aggregation-controller", "cronjob-controller", "daemonset-controller", "deployment-controller",
	"disruption-controller", "endpointslice-controller", "ephemeral-volume-controller", "garbage-collector-controller",
	"job-controller", "namespace-controller", "node-lifecycle-controller", "persistentvolume-binder-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller", "pod-garbage-collector-controller",
	"replicaset-controller", "resourcequota-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"serviceaccount-token-controller", "statefulset-controller", "taint-eviction-controller", "ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}

func (s *State) spec(name string, args []string, env ...string) proc.Spec {
	return proc.Spec{Name: name, Path: s.Tools[name], Args: args, Env: env, Log: filepath.Join(s.Dir, "logs", name+".log")}
}

// etcdSpec runs without fsync: a test's data need not survive the machine.
func (s *State) etcdSpec() proc.Spec {
	return s.spec(tools.Etcd, []string{
		"--name=plane",
		"--data-dir=" + filepath.Join(s.Dir, "etcd"),
		"--listen-client-urls=" + s.Etcd,
		"--advertise-client-urls=" + s.Etcd,
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--quota-backend-bytes=4294967296",
		"--log-level=warn",
	})
}

func (s *State) apiServerSpec(port int) proc.Spec {
	return s.spec(tools.APIServer, []string{
		"--etcd-servers=" + s.Etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none", // loopback may not be an endpoint
		"--tls-cert-file=" + s.pki("server.crt"),
		"--tls-private-key-file=" + s.pki("server.key"),
		"--client-ca-file=" + s.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.pki("sa.pub"),
		"--service-account-signing-key-file=" + s.pki("sa.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		// Beside the defaults: what kubeadm adds, and the check that who blocks an owner's deletion may do so.
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
		// It taints every new node as not ready until the node controller has seen it: a write for each of thousands of nodes
		// that are ready from the start. The controller still taints those that are not.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--allow-privileged=true",
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}, "GOGC=200") // memory is cheaper here than the collector's time
}

// managerSpec lets nodes live without heartbeats (a thousand fake ones would keep a small machine busy): only a Ready
// condition that somebody sets to False taints a node, by the real controller.
func (s *State) managerSpec() proc.Spec {
	return s.spec(tools.Manager, []string{
		"--kubeconfig=" + s.internalKubeconfig("manager"),
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + s.pki("sa.key"),
		"--root-ca-file=" + s.pki("ca.crt"),
		"--leader-elect=false",
		"--secure-port=0",
		"--node-monitor-grace-period=8760h",
		"--node-startup-grace-period=8760h",
		"--node-monitor-period=1s",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--profiling=false",
	})
}

func (s *State) kwokSpec(configs []string) proc.Spec {
	args := []string{
		"--kubeconfig=" + s.internalKubeconfig("kwok"),
		"--manage-all-nodes=false",
		"--manage-nodes-with-label-selector=" + fakeNode,
		"--node-lease-duration-seconds=0",
		"--cidr=" + podRange,
	}
	for _, config := range configs {
		args = append(args, "--config="+config)
	}
	return s.spec(tools.Kwok, args, "KWOK_WORKDIR="+filepath.Join(s.Dir, "kwok"))
}

func (s *State) internalKubeconfig(user string) string {
	return filepath.Join(s.Dir, "pki", user+".kubeconfig")
}
