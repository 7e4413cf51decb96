package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"berth.dev/hack/controlplane/internal/cluster"
	"berth.dev/hack/controlplane/internal/load"
)

func nodesCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var shape load.Shape
	dir := flags.String("dir", "", "folder of the control plane")
	flags.IntVar(&shape.Blocks, "blocks", 2, "blocks")
	flags.IntVar(&shape.Racks, "racks", 2, "racks in a block")
	flags.IntVar(&shape.Nodes, "nodes", 4, "nodes in a rack")
	flags.IntVar(&shape.GPUs, "gpus", 8, "GPUs in a node")
	flags.IntVar(&shape.Count, "count", 0, "nodes in all, in as many blocks as they fill (instead of --blocks)")
	flags.StringVar(&shape.BlockLabel, "block-label", "fabric.topograph.run/tier-1", "label that names the block")
	flags.StringVar(&shape.RackLabel, "rack-label", "fabric.topograph.run/tier-0", "label that names the rack within its block")
	flags.StringVar(&shape.Prefix, "prefix", "", "put before every node's name")
	remove := flags.Bool("remove", false, "remove all fake nodes instead")
	timeout := flags.Duration("timeout", 3*time.Minute, "give up after this long")
	if err := parse(flags, args); err != nil {
		return err
	}
	if shape.Blocks < 1 || shape.Racks < 1 || shape.Nodes < 1 || shape.Count < 0 || shape.GPUs < 0 {
		return errors.New("--blocks, --racks and --nodes are at least 1, --count and --gpus at least 0")
	}
	client, err := admin(*dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if *remove {
		return load.RemoveNodes(ctx, client)
	}
	begin := time.Now()
	count, err := load.CreateNodes(ctx, client, shape)
	if err == nil {
		logf("%d nodes ready in %s", count, time.Since(begin).Round(time.Millisecond))
	}
	return err
}

func podsCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var pods load.Pods
	dir := flags.String("dir", "", "folder of the control plane")
	flags.IntVar(&pods.Count, "count", 1000, "pods")
	flags.IntVar(&pods.Concurrency, "concurrency", 32, "requests at once")
	flags.StringVar(&pods.Namespace, "namespace", "default", "namespace")
	flags.StringVar(&pods.Prefix, "prefix", "bare", "first part of the pods' names")
	flags.BoolVar(&pods.Wait, "wait", true, "wait until all run")
	timeout := flags.Duration("timeout", 5*time.Minute, "give up after this long")
	if err := parse(flags, args); err != nil {
		return err
	}
	if pods.Count < 1 || pods.Concurrency < 1 {
		return errors.New("--count and --concurrency are at least 1")
	}
	client, err := admin(*dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	timing, err := load.CreatePods(ctx, client, pods)
	if err != nil {
		return err
	}
	return printJSON(map[string]any{"pods": pods.Count, "createdSeconds": timing.Created.Seconds(), "runningSeconds": timing.Running.Seconds()})
}

func userCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	name := flags.String("name", "", "user name")
	groups := flags.String("groups", "", "groups, with commas between")
	namespace := flags.String("namespace", "default", "namespace of the context")
	out := flags.String("out", "", "kubeconfig to write (default DIR/NAME.kubeconfig)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *name == "" {
		return errors.New("--name USER is missing")
	}
	state, err := cluster.Load(*dir)
	if err != nil {
		return err
	}
	path := outPath(*out, state.Dir, *name)
	fields := strings.FieldsFunc(*groups, func(r rune) bool { return r == ',' })
	if err := state.User(*name, fields, *namespace, path); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

func tokenCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	account := flags.String("service-account", "", "NAMESPACE/NAME of the service account, which must exist")
	lifetime := flags.Duration("lifetime", 24*time.Hour, "lifetime of the token")
	out := flags.String("out", "", "kubeconfig to write (default DIR/NAME.kubeconfig)")
	if err := parse(flags, args); err != nil {
		return err
	}
	namespace, name, found := strings.Cut(*account, "/")
	if !found {
		return errors.New("--service-account NAMESPACE/NAME is missing")
	}
	state, err := cluster.Load(*dir)
	if err != nil {
		return err
	}
	client, err := state.Admin()
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", url.PathEscape(namespace), url.PathEscape(name))
	request := map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": int(lifetime.Seconds())},
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := client.Post(ctx, path, request, &answer); err != nil {
		return fmt.Errorf("service account %s: %w", *account, err)
	}
	target := outPath(*out, state.Dir, name)
	if err := state.TokenUser(name, answer.Status.Token, namespace, target); err != nil {
		return err
	}
	fmt.Println(target)
	return nil
}

func outPath(out, dir, name string) string {
	if out != "" {
		return out
	}
	return filepath.Join(dir, strings.ReplaceAll(name, ":", "-")+".kubeconfig")
}
