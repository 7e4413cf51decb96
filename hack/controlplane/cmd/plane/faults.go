package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"berth.dev/hack/controlplane/internal/cluster"
	"berth.dev/hack/controlplane/internal/kube"
	"berth.dev/hack/controlplane/internal/load"
)

type run = func(context.Context, *flag.FlagSet, []string) error

// named gives a command its PROCESS.
func named(process string, command run) run {
	return func(ctx context.Context, flags *flag.FlagSet, args []string) error {
		return command(ctx, flags, append(args, process))
	}
}

// process parses `--dir DIR PROCESS`.
func process(flags *flag.FlagSet, args []string) (dir, name string, err error) {
	flag := flags.String("dir", "", "folder of the control plane")
	if err := parse(flags, args); err != nil {
		return "", "", err
	}
	if flags.NArg() != 1 {
		return "", "", errors.New("exactly one PROCESS is wanted: kube-apiserver, etcd, kube-controller-manager or kwok")
	}
	return *flag, flags.Arg(0), nil
}

func killCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir, name, err := process(flags, args)
	if err != nil {
		return err
	}
	return cluster.Kill(dir, name)
}

func restartCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	grace := flags.Duration("grace", 0, "time to end by SIGTERM before SIGKILL; 0: SIGKILL at once")
	wait := flags.Duration("wait", time.Minute, "wait this long for the API server to be ready; 0: do not wait")
	dir, name, err := process(flags, args)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := cluster.Restart(dir, name, *grace); err != nil || *wait == 0 {
		return err
	}
	state, err := cluster.Load(dir)
	if err != nil {
		return err
	}
	if err := state.Ready(ctx, *wait); err != nil {
		return err
	}
	logf("%s restarted and the API server ready in %s", name, time.Since(begin).Round(time.Millisecond))
	return nil
}

func pauseCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	return signalTo(flags, args, syscall.SIGSTOP)
}

func resumeCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	return signalTo(flags, args, syscall.SIGCONT)
}

func signalTo(flags *flag.FlagSet, args []string, signal syscall.Signal) error {
	dir, name, err := process(flags, args)
	if err != nil {
		return err
	}
	state, err := cluster.Load(dir)
	if err != nil {
		return err
	}
	return state.Signal(name, signal)
}

func compactCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	if err := parse(flags, args); err != nil {
		return err
	}
	state, err := cluster.Load(*dir)
	if err != nil {
		return err
	}
	revision, err := state.CompactEtcd(ctx)
	if err == nil {
		fmt.Println(revision)
	}
	return err
}

func failNodeCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	return onNodes(ctx, flags, args, load.FailNode)
}

func healNodeCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	return onNodes(ctx, flags, args, load.HealNode)
}

func onNodes(ctx context.Context, flags *flag.FlagSet, args []string, act func(context.Context, *kube.Client, string) error) error {
	dir := flags.String("dir", "", "folder of the control plane")
	if err := parse(flags, args); err != nil {
		return err
	}
	client, err := admin(*dir)
	if err != nil {
		return err
	}
	for _, name := range flags.Args() {
		if err := act(ctx, client, name); err != nil {
			return err
		}
	}
	return nil
}

func admin(dir string) (*kube.Client, error) {
	state, err := cluster.Load(dir)
	if err != nil {
		return nil, err
	}
	return state.Admin()
}

func kubectlCommand(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "folder of the control plane")
	if err := parse(flags, args); err != nil {
		return err
	}
	state, err := cluster.Load(*dir)
	if err != nil {
		return err
	}
	path := state.Tools["kubectl"]
	environment := []string{"KUBECONFIG=" + state.Kubeconfig}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "KUBECONFIG=") {
			environment = append(environment, pair)
		}
	}
	return syscall.Exec(path, append([]string{"kubectl"}, flags.Args()...), environment)
}
