// Package load fills a cluster: fake nodes with topology labels, and plain pods to compare Berth's starts with.
package load

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"berth.dev/hack/controlplane/internal/kube"
)

// Shape of a fake cluster. Rack names repeat in every block on purpose: a rack's identity is its whole path.
type Shape struct {
	Blocks, Racks, Nodes, GPUs int
	// Count, if not 0, is the number of nodes in all; as many blocks are made as they fill.
	Count                 int
	BlockLabel, RackLabel string
	Prefix                string
}

// Node is one place in the shape.
type Node struct{ Name, Block, Rack string }

// List names the nodes in order: block by block, rack by rack.
func (s Shape) List() []Node {
	count := s.Count
	if count == 0 {
		count = s.Blocks * s.Racks * s.Nodes
	}
	nodes := make([]Node, 0, count)
	for i := range count {
		rack := i / s.Nodes
		block, place := fmt.Sprintf("b%d", rack/s.Racks), fmt.Sprintf("r%d", rack%s.Racks)
		nodes = append(nodes, Node{fmt.Sprintf("%s%s-%s-n%d", s.Prefix, block, place, i%s.Nodes), block, place})
	}
	return nodes
}

type object = map[string]any

// manifest is a node that has registered already: its status is part of the creation, which saves a request for each.
func (s Shape) manifest(node Node, now string) object {
	resources := object{"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti"}
	if s.GPUs > 0 {
		resources["nvidia.com/gpu"] = fmt.Sprint(s.GPUs)
	}
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{
			"name": node.Name,
			"labels": object{
				s.BlockLabel: node.Block, s.RackLabel: node.Rack,
				"kubernetes.io/hostname": node.Name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok", "kwok.x-k8s.io/node": "fake",
			},
		},
		"status": object{
			"capacity": resources, "allocatable": resources,
			"conditions": []object{ready("True", now)},
			"addresses":  []object{{"type": "Hostname", "address": node.Name}},
			"nodeInfo": object{
				"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "fake", "containerRuntimeVersion": "fake",
				"kernelVersion": "", "osImage": "", "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
			},
		},
	}
}

func ready(status, now string) object {
	reason := "KubeletReady"
	if status != "True" {
		reason = "NodeStatusUnknown"
	}
	return object{"type": "Ready", "status": status, "reason": reason, "message": "fake kubelet", "lastHeartbeatTime": now, "lastTransitionTime": now}
}

// CreateNodes creates the nodes of a shape and waits until each is Ready and not tainted.
func CreateNodes(ctx context.Context, client *kube.Client, shape Shape) (int, error) {
	nodes := shape.List()
	now := time.Now().UTC().Format(time.RFC3339)
	names := map[string]bool{}
	for _, node := range nodes {
		names[node.Name] = true
	}
	err := each(ctx, 32, len(nodes), func(ctx context.Context, i int) error {
		return register(ctx, client, shape.manifest(nodes[i], now))
	})
	if err != nil {
		return 0, err
	}
	return len(nodes), waitNodes(ctx, client, names)
}

// register creates one node.
func register(ctx context.Context, client *kube.Client, manifest object) error {
	err := client.Post(ctx, "/api/v1/nodes", manifest, nil)
	if kube.IsConflict(err) {
		return nil // it is there already
	}
	return err
}

// RemoveNodes deletes all fake nodes in one request. Pods bound to them stay until the pod garbage collector notices.
func RemoveNodes(ctx context.Context, client *kube.Client) error {
	path := "/api/v1/nodes?" + url.Values{"labelSelector": {"type=kwok"}}.Encode()
	return client.Do(ctx, http.MethodDelete, path, kube.JSON, nil, nil)
}

func waitNodes(ctx context.Context, client *kube.Client, names map[string]bool) error {
	for {
		pending, err := unready(ctx, client, names)
		if err != nil {
			return err
		}
		if pending == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are not Ready or still tainted: %w", pending, len(names), ctx.Err())
		case <-time.After(time.Second): // a list of thousands of nodes is work for the server that creates them
		}
	}
}

func unready(ctx context.Context, client *kube.Client, names map[string]bool) (int, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Taints []struct {
					Key string `json:"key"`
				} `json:"taints"`
			} `json:"spec"`
			Status struct {
				Conditions []struct{ Type, Status string } `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := client.Get(ctx, "/api/v1/nodes?resourceVersion=0", &list); err != nil {
		return 0, err
	}
	pending := len(names)
	for _, node := range list.Items {
		good := false
		for _, condition := range node.Status.Conditions {
			good = good || condition.Type == "Ready" && condition.Status == "True"
		}
		for _, taint := range node.Spec.Taints {
			good = good && taint.Key != "node.kubernetes.io/not-ready"
		}
		if good && names[node.Metadata.Name] {
			pending--
		}
	}
	return pending, nil
}

// FailNode plays a machine that dies: KWOK lets go of the node (its pods neither start, end nor go any more) and Ready becomes Unknown.
func FailNode(ctx context.Context, client *kube.Client, name string) error {
	return setNode(ctx, client, name, nil, "Unknown")
}

// HealNode brings it back.
func HealNode(ctx context.Context, client *kube.Client, name string) error {
	return setNode(ctx, client, name, "fake", "True")
}

func setNode(ctx context.Context, client *kube.Client, name string, label any, status string) error {
	path := "/api/v1/nodes/" + url.PathEscape(name)
	patch := object{"metadata": object{"labels": object{"kwok.x-k8s.io/node": label}}}
	if err := client.Do(ctx, http.MethodPatch, path, kube.Merge, patch, nil); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	patch = object{"status": object{"conditions": []object{ready(status, now)}}}
	if err := client.Do(ctx, http.MethodPatch, path+"/status", kube.Strategic, patch, nil); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

// each runs work for 0..count in a number of workers and stops at the first error.
func each(ctx context.Context, workers, count int, work func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan int)
	var group sync.WaitGroup
	for range min(workers, count) {
		group.Go(func() {
			for i := range jobs {
				if err := work(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range count {
		select {
		case jobs <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	group.Wait()
	return context.Cause(ctx)
}
