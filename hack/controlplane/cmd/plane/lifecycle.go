package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"berth.dev/hack/controlplane/internal/cluster"
	"berth.dev/hack/controlplane/internal/tools"
	"berth.dev/hack/controlplane/stages"
)

// root is the folder of this module's sources; the wrapper hack/plane sets it.
func root() (string, error) {
	if dir := os.Getenv("BERTH_PLANE_ROOT"); dir != "" {
		return dir, nil
	}
	if _, err := os.Stat("tools/kubernetes/go.mod"); err == nil {
		return ".", nil
	}
	return "", errors.New("where are the tools' go.mod files? Run hack/plane, or set BERTH_PLANE_ROOT to hack/controlplane")
}

func buildCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	asJSON := flags.Bool("json", false, "print the binaries' paths as one JSON line")
	if err := parse(flags, args); err != nil {
		return err
	}
	dir, err := root()
	if err != nil {
		return err
	}
	paths, err := tools.Find(ctx, dir, logf, flags.Args()...)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(paths)
	}
	for _, spec := range tools.Specs() {
		if path, ok := paths[spec.Name]; ok {
			fmt.Printf("%-24s %s\n", spec.Name, path)
		}
	}
	return nil
}

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func upCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var before list
	dir := flags.String("dir", "", "folder of the control plane, made if need be")
	asJSON := flags.Bool("json", false, "print one JSON line when ready: kubeconfig, server, dir, pids, kubectl")
	foreground := flags.Bool("foreground", false, "stay, and end everything on SIGTERM, SIGINT or when the parent process is gone")
	owner := flags.Int("owner", 0, "pid of a process: when it is gone, however it ended, the control plane is taken down")
	quiet := flags.Bool("quiet", false, "print no progress")
	flags.Var(&before, "crds", "file or folder to apply before the controllers start (the garbage collector finds new kinds only every 30 s); repeatable")
	if err := parse(flags, args); err != nil {
		return err
	}
	source, err := root()
	if err != nil {
		return err
	}
	parent := os.Getppid()
	if *foreground && *owner == 0 {
		*owner = os.Getpid() // the guard also covers a SIGKILL of this process
	}
	if *owner != 0 {
		if err := cluster.StartGuard(*dir, *owner); err != nil {
			return err
		}
	}
	log := logf
	if *quiet {
		log = func(string, ...any) {}
	}
	state, err := cluster.Up(ctx, cluster.Options{Root: source, Dir: *dir, Before: before, Stages: stages.Files, Log: log})
	if err != nil {
		return err
	}
	if err := announce(state, *asJSON); err != nil || !*foreground {
		return err
	}
	cluster.WaitOwner(ctx, parent)
	log("taking the control plane down")
	return cluster.Down(*dir)
}

// announce prints where the control plane is.
func announce(state *cluster.State, asJSON bool) error {
	if !asJSON {
		fmt.Printf("export KUBECONFIG=%s\n", state.Kubeconfig)
		return nil
	}
	pids := map[string]int{}
	for _, status := range state.Status() {
		pids[status.Name] = status.PID
	}
	return printJSON(map[string]any{
		"kubeconfig": state.Kubeconfig, "server": state.Server, "dir": state.Dir, "pids": pids,
		"kubectl": state.Tools[tools.Kubectl], "external": state.External,
	})
}

func downCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	if err := parse(flags, args); err != nil {
		return err
	}
	return cluster.Down(*dir)
}

func statusCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return err
	}
	state, err := cluster.Load(*dir)
	if err != nil {
		return err
	}
	all := state.Status()
	if *asJSON {
		return printJSON(map[string]any{"kubeconfig": state.Kubeconfig, "server": state.Server, "processes": all})
	}
	fmt.Printf("%s  %s\n", state.Server, state.Kubeconfig)
	for _, status := range all {
		word := "running"
		if !status.Alive {
			word = "dead"
		}
		fmt.Printf("  %-24s pid %-8d %s\n", status.Name, status.PID, word)
	}
	return nil
}

func guardCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "")
	owner := flags.Int("owner", 0, "")
	born := flags.Uint64("born", 0, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	return cluster.Guard(*dir, *owner, *born)
}

func printJSON(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
