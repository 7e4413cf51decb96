// Package smoke runs a whole control plane and checks what Berth's tests rely on. PLANE_SMOKE=1 switches it on, as the tools may have to be built.
package smoke

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/hack/controlplane/internal/cluster"
	"berth.dev/hack/controlplane/internal/kube"
	"berth.dev/hack/controlplane/internal/load"
	"berth.dev/hack/controlplane/internal/tools"
	"berth.dev/hack/controlplane/stages"
)

type object = map[string]any

type plane struct {
	*testing.T
	state  *cluster.State
	client *kube.Client
}

func TestAPlaneDoesWhatBerthReliesOn(t *testing.T) {
	if os.Getenv("PLANE_SMOKE") == "" {
		t.Skip("SKIPPED: set PLANE_SMOKE=1 to run a real control plane (its tools are built the first time, about 8 minutes)")
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := cluster.Down(dir); err != nil {
			t.Error(err)
		}
	})
	state, err := cluster.Up(t.Context(), cluster.Options{Root: "../..", Dir: dir, Stages: stages.Files, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	client, err := state.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load.CreateNodes(t.Context(), client, shape()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(plane)
	}{
		{"a bound pod runs", boundPodRuns},
		{"a pod ends with the exit code its annotation names", podEnds},
		{"a pod held by a finalizer ends before it goes", heldPodEnds},
		{"a refused pod fails with the kubelet's reason", refusedPodFails},
		{"the owner's end is the end of what it owns", ownedGoes},
		{"a namespace goes with all that is in it", namespaceGoes},
		{"a watch streams the list first", watchStreamsList},
		{"a dead node's pods stay until it is healed", deadNodeKeepsPods},
		{"a restarted API server has its data and its port", restartKeepsData},
		{"a watch from before a compaction is told that it is gone", compactedWatchIsGone},
		{"a user has no rights but those given", userIsRestricted},
		{"a thousand bound pods run", thousandPodsRun},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(plane{t, state, client}) })
	}
}

func shape() load.Shape {
	return load.Shape{Blocks: 2, Racks: 2, Nodes: 4, GPUs: 8,
		BlockLabel: "fabric.topograph.run/tier-1", RackLabel: "fabric.topograph.run/tier-0"}
}

const pods = "/api/v1/namespaces/default/pods"

func (p plane) create(path string, body object) object {
	p.Helper()
	var out object
	if err := p.client.Post(p.Context(), path, body, &out); err != nil {
		p.Fatal(err)
	}
	return out
}

func (p plane) remove(path string) {
	p.Helper()
	if err := p.client.Do(p.Context(), http.MethodDelete, path, kube.JSON, nil, nil); err != nil {
		p.Fatal(err)
	}
}

func pod(name, node string, annotations object) object {
	return object{"metadata": object{"name": name, "annotations": annotations},
		"spec": object{"nodeName": node, "restartPolicy": "Never", "containers": []object{{"name": "main", "image": "fake"}}}}
}

type podView struct {
	Status struct {
		Phase, PodIP, StartTime, Reason string
		ContainerStatuses               []struct {
			State struct{ Terminated struct{ ExitCode int } }
		}
	}
}

// until waits for a condition of a pod.
func (p plane) until(name, what string, holds func(podView) bool) podView {
	p.Helper()
	var view podView
	p.wait(what, func() bool {
		view = podView{}
		return p.client.Get(p.Context(), pods+"/"+name, &view) == nil && holds(view)
	})
	return view
}

func (p plane) wait(what string, holds func() bool) {
	p.Helper()
	for deadline := time.Now().Add(90 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("waited 90 s for %s", what)
		}
	}
}

func (p plane) gone(path string) bool { return kube.IsNotFound(p.client.Get(p.Context(), path, nil)) }

func boundPodRuns(p plane) {
	p.create(pods, pod("runs", "b0-r0-n0", nil))
	view := p.until("runs", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
	if view.Status.PodIP == "" || view.Status.StartTime == "" {
		p.Errorf("no address or start time: %+v", view.Status)
	}
}

func podEnds(p plane) {
	p.create(pods, pod("fails", "b0-r0-n0", object{"kubelet.test/runtime": "1s", "kubelet.test/exit": "7"}))
	p.create(pods, pod("ends", "b0-r0-n0", object{"berth.dev/fake-runtime": "1s"}))
	view := p.until("fails", "Failed", func(v podView) bool { return v.Status.Phase == "Failed" })
	if code := view.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 7 {
		p.Errorf("exit code %d", code)
	}
	p.until("ends", "Succeeded", func(v podView) bool { return v.Status.Phase == "Succeeded" })
}

func heldPodEnds(p plane) {
	body := pod("held", "b0-r0-n0", nil)
	body["metadata"].(object)["finalizers"] = []string{"plane.test/hold"}
	p.create(pods, body)
	p.until("held", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
	p.remove(pods + "/held")
	p.until("held", "Failed", func(v podView) bool { return v.Status.Phase == "Failed" })
	patch := object{"metadata": object{"finalizers": nil}}
	if err := p.client.Do(p.Context(), http.MethodPatch, pods+"/held", kube.Merge, patch, nil); err != nil {
		p.Fatal(err)
	}
	p.wait("the pod to go", func() bool { return p.gone(pods + "/held") })
}

func refusedPodFails(p plane) {
	p.create(pods, pod("refused", "b0-r0-n0", object{"kubelet.test/refuse": "OutOfpods"}))
	p.until("refused", "Failed OutOfpods", func(v podView) bool { return v.Status.Phase == "Failed" && v.Status.Reason == "OutOfpods" })
}

func ownedGoes(p plane) {
	maps := "/api/v1/namespaces/default/configmaps"
	owner := p.create(maps, object{"metadata": object{"name": "owner"}})
	body := pod("owned", "b0-r0-n0", nil)
	body["metadata"].(object)["ownerReferences"] = []object{{
		"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"].(object)["uid"]}}
	p.create(pods, body)
	p.until("owned", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
	p.remove(maps + "/owner")
	p.wait("the owned pod to go", func() bool { return p.gone(pods + "/owned") })
}

func namespaceGoes(p plane) {
	p.create("/api/v1/namespaces", object{"metadata": object{"name": "leaving"}})
	inside := "/api/v1/namespaces/leaving"
	p.wait("its service account", func() bool { return p.client.Get(p.Context(), inside+"/serviceaccounts/default", nil) == nil })
	p.create(inside+"/pods", pod("inside", "b0-r0-n0", nil))
	p.remove(inside)
	p.wait("the namespace to go", func() bool { return p.gone(inside) })
}

func deadNodeKeepsPods(p plane) {
	p.create(pods, pod("stuck", "b1-r1-n3", nil))
	p.until("stuck", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
	if err := load.FailNode(p.Context(), p.client, "b1-r1-n3"); err != nil {
		p.Fatal(err)
	}
	p.wait("the node's taint", func() bool {
		var node struct {
			Spec struct{ Taints []struct{ Key string } }
		}
		err := p.client.Get(p.Context(), "/api/v1/nodes/b1-r1-n3", &node)
		return err == nil && len(node.Spec.Taints) > 0
	})
	p.remove(pods + "/stuck")
	p.create(pods, pod("witness", "b1-r1-n2", nil)) // KWOK has seen the deletion once it has played this later pod
	p.until("witness", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
	if p.gone(pods + "/stuck") {
		p.Error("a pod on a dead node was ended")
	}
	if err := load.HealNode(p.Context(), p.client, "b1-r1-n3"); err != nil {
		p.Fatal(err)
	}
	p.wait("the pod to go", func() bool { return p.gone(pods + "/stuck") })
}

func restartKeepsData(p plane) {
	if err := cluster.Restart(p.state.Dir, tools.APIServer, 0); err != nil {
		p.Fatal(err)
	}
	state, err := cluster.Load(p.state.Dir)
	if err != nil {
		p.Fatal(err)
	}
	if err := state.Ready(p.Context(), time.Minute); err != nil {
		p.Fatal(err)
	}
	if p.gone(pods + "/runs") {
		p.Error("its data is gone")
	}
	p.create(pods, pod("after", "b0-r0-n0", nil))
	p.until("after", "Running", func(v podView) bool { return v.Status.Phase == "Running" })
}

// watch returns the events of a watch until one satisfies the predicate.
func (p plane) watch(query string, last func(kind string, event object) bool) (count int) {
	p.Helper()
	ca, err := os.ReadFile(filepath.Join(p.state.Dir, "pki", "ca.crt"))
	if err != nil {
		p.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(p.state.Dir, "pki", "admin.crt"), filepath.Join(p.state.Dir, "pki", "admin.key"))
	if err != nil {
		p.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(p.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.state.Server+query, nil)
	if err != nil {
		p.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(bufio.NewReader(response.Body))
	for {
		var event struct {
			Type   string
			Object object
		}
		if err := decoder.Decode(&event); err != nil {
			p.Fatalf("the watch %s ended after %d events: %v", query, count, err)
		}
		if last(event.Type, event.Object) {
			return count
		}
		count++
	}
}

func watchStreamsList(p plane) {
	count := p.watch("/api/v1/nodes?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
		func(kind string, event object) bool {
			return kind == "BOOKMARK" && strings.Contains(fmt.Sprint(event["metadata"]), "initial-events-end")
		})
	if count != 16 {
		p.Errorf("%d nodes before the bookmark, want 16", count)
	}
}

// compactedWatchIsGone uses a fresh API server: the one before would serve old versions from its cache.
func compactedWatchIsGone(p plane) {
	if _, err := p.state.CompactEtcd(p.Context()); err != nil {
		p.Fatal(err)
	}
	if err := cluster.Restart(p.state.Dir, tools.APIServer, 0); err != nil {
		p.Fatal(err)
	}
	state, err := cluster.Load(p.state.Dir)
	if err != nil {
		p.Fatal(err)
	}
	if err := state.Ready(p.Context(), time.Minute); err != nil {
		p.Fatal(err)
	}
	p.watch("/api/v1/nodes?watch=1&resourceVersion=1", func(kind string, event object) bool {
		return kind == "ERROR" && fmt.Sprint(event["code"]) == "410"
	})
}

func userIsRestricted(p plane) {
	path := filepath.Join(p.state.Dir, "ann.kubeconfig")
	if err := p.state.User("ann", []string{"team-a"}, "default", path); err != nil {
		p.Fatal(err)
	}
	client, err := kube.FromKubeconfig(p.state.Tools[tools.Kubectl], path)
	if err != nil {
		p.Fatal(err)
	}
	var status *kube.StatusError
	if err := client.Get(p.Context(), pods, nil); !errors.As(err, &status) || status.Code != http.StatusForbidden {
		p.Errorf("want 403, got %v", err)
	}
}

func thousandPodsRun(p plane) {
	timing, err := load.CreatePods(p.Context(), p.client,
		load.Pods{Namespace: "default", Prefix: "many", Count: 1000, Concurrency: 32, Wait: true})
	if err != nil {
		p.Fatal(err)
	}
	p.Logf("1000 pods created in %s, running in %s", timing.Created, timing.Running)
}
