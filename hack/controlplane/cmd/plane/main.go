// Command plane builds, runs and torments a real Kubernetes control plane without containers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// command is one verb. Its function registers flags, parses, and acts.
type command struct {
	name, args, help string
	run              func(context.Context, *flag.FlagSet, []string) error
}

func commands() []command {
	return []command{
		{"build", "[TOOL…]", "find or build the tools (none named: all); the first time takes about 8 minutes on 2 cores", buildCommand},
		{"up", "--dir DIR", "bring a control plane up and wait until it is ready", upCommand},
		{"down", "--dir DIR", "end it and remove its data; logs stay", downCommand},
		{"status", "--dir DIR", "list its processes", statusCommand},
		{"nodes", "--dir DIR", "create fake nodes with topology labels", nodesCommand},
		{"pods", "--dir DIR", "create plain pods, bound, in a bare concurrent loop, and print the times", podsCommand},
		{"user", "--dir DIR --name USER", "write a kubeconfig for any user in any groups", userCommand},
		{"token", "--dir DIR --service-account NS/NAME", "write a kubeconfig with a service account's rights", tokenCommand},
		{"kubectl", "--dir DIR -- ARGS", "run the pinned kubectl as admin", kubectlCommand},
		{"fail-node", "--dir DIR NODE…", "a machine dies: nothing on the node moves any more, Ready is Unknown", failNodeCommand},
		{"heal-node", "--dir DIR NODE…", "it comes back", healNodeCommand},
		{"kill", "--dir DIR PROCESS", "end one process with SIGKILL", killCommand},
		{"restart", "--dir DIR PROCESS", "start it again: same port, same data", restartCommand},
		{"pause", "--dir DIR PROCESS", "freeze it: connections stay open and nothing answers", pauseCommand},
		{"resume", "--dir DIR PROCESS", "let it go on", resumeCommand},
		{"kill-apiserver", "--dir DIR", "kill kube-apiserver", named("kube-apiserver", killCommand)},
		{"restart-apiserver", "--dir DIR", "restart kube-apiserver and wait until it is ready", named("kube-apiserver", restartCommand)},
		{"compact-etcd", "--dir DIR", "drop history: watches from older versions answer 410 Gone", compactCommand},
		{"guard", "", "", guardCommand},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "plane:", err)
		os.Exit(1)
	}
}

// errUsage ends the program after the usage was printed.
var errUsage = errors.New("usage")

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return errUsage
	}
	if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		usage(os.Stdout)
		return nil
	}
	for _, command := range commands() {
		if command.name == args[0] {
			flags := flag.NewFlagSet("plane "+command.name, flag.ContinueOnError)
			flags.Usage = func() {
				fmt.Fprintf(flags.Output(), "plane %s %s: %s\n", command.name, command.args, command.help)
				flags.PrintDefaults()
			}
			return command.run(ctx, flags, args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "plane: no command %q\n", args[0])
	usage(os.Stderr)
	return errUsage
}

func usage(out *os.File) {
	fmt.Fprint(out, "plane: a real Kubernetes control plane without containers\n\n")
	for _, command := range commands() {
		if command.help != "" {
			fmt.Fprintf(out, "  %-18s %-34s %s\n", command.name, command.args, command.help)
		}
	}
	fmt.Fprint(out, "\n`plane COMMAND --help` lists its flags. PROCESS: kube-apiserver, etcd, kube-controller-manager, kwok.\n"+
		"Tools come from KUBEBUILDER_ASSETS, then PATH, then the cache, where the version will do.\n"+
		"KUBECONFIG with BERTH_USE_CLUSTER=1: that cluster is used and nothing is started.\n")
}

// parse reads flags and, where one is wanted, checks --dir.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if dir := flags.Lookup("dir"); dir != nil && dir.Value.String() == "" {
		return errors.New("--dir DIR is missing: the folder of the control plane")
	}
	return nil
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "plane: "+format+"\n", args...) }
