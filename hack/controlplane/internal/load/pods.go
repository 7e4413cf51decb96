package load

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"berth.dev/hack/controlplane/internal/kube"
)

// Pods says which plain pods to create: bound at creation, round robin over all fake nodes.
type Pods struct {
	Namespace   string
	Prefix      string
	Count       int
	Concurrency int
	Wait        bool
}

// Timing of a bare loop.
type Timing struct {
	Created time.Duration
	Running time.Duration
}

// CreatePods is the bare concurrent loop that a gang's start is measured against.
func CreatePods(ctx context.Context, client *kube.Client, pods Pods) (Timing, error) {
	nodes, err := fakeNodes(ctx, client)
	if err != nil {
		return Timing{}, err
	}
	if len(nodes) == 0 {
		return Timing{}, fmt.Errorf("no fake nodes: `plane nodes` creates some")
	}
	path := "/api/v1/namespaces/" + url.PathEscape(pods.Namespace) + "/pods"
	begin := time.Now()
	err = each(ctx, pods.Concurrency, pods.Count, func(ctx context.Context, i int) error {
		return client.Post(ctx, path, pods.manifest(i, nodes[i%len(nodes)]), nil)
	})
	timing := Timing{Created: time.Since(begin)}
	if err != nil || !pods.Wait {
		return timing, err
	}
	err = pods.waitRunning(ctx, client, path)
	timing.Running = time.Since(begin)
	return timing, err
}

func (p Pods) manifest(i int, node string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": fmt.Sprintf("%s-%d", p.Prefix, i), "labels": object{"plane.test/set": p.Prefix}},
		"spec": object{
			"nodeName": node, "restartPolicy": "Never",
			"containers": []object{{"name": "main", "image": "fake", "resources": object{"requests": object{"cpu": "100m"}}}},
		},
	}
}

func (p Pods) waitRunning(ctx context.Context, client *kube.Client, path string) error {
	query := url.Values{"labelSelector": {"plane.test/set=" + p.Prefix}, "fieldSelector": {"status.phase=Running"}}
	for {
		var list struct {
			Items []struct{} `json:"items"`
		}
		if err := client.Get(ctx, path+"?"+query.Encode(), &list); err != nil {
			return err
		}
		if len(list.Items) >= p.Count {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods run: %w", len(list.Items), p.Count, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func fakeNodes(ctx context.Context, client *kube.Client) ([]string, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	query := url.Values{"labelSelector": {"kwok.x-k8s.io/node=fake"}}
	if err := client.Get(ctx, "/api/v1/nodes?"+query.Encode(), &list); err != nil {
		return nil, err
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Metadata.Name)
	}
	return names, nil
}
