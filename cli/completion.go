package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
)

// completionPatience is how long a shell waits for names at most: a key was pressed.
const completionPatience = 500 * time.Millisecond

const completionLong = `Print the script that teaches your shell to complete commands, flags, workloads and queues.

  bash:  aliquot completion bash > ~/.local/share/bash-completion/completions/aliquot
  zsh:   aliquot completion zsh > "${fpath[1]}/_aliquot"
  fish:  aliquot completion fish > ~/.config/fish/completions/aliquot.fish

Bash needs the package bash-completion for it.`

func (c *invocation) completionCommand(root *cobra.Command) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a shell's completion script",
		Long:      completionLong,
		Args:      args(1, "the name of a shell: bash, zsh or fish"),
		ValidArgs: shells,
		RunE: func(_ *cobra.Command, given []string) error {
			switch given[0] {
			case "bash":
				return root.GenBashCompletionV2(c.Out, true)
			case "zsh":
				return root.GenZshCompletion(c.Out)
			case "fish":
				return root.GenFishCompletion(c.Out, true)
			default:
				return usagef("there is no completion for %q: use bash, zsh or fish", given[0])
			}
		},
	}
}

// completion offers the names that values finds and that were not given yet. A server that does not answer offers nothing.
func (c *invocation) completion(values func(*invocation) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if cmd.Args != nil && len(given) > 0 && cmd.Args(cmd, append(slices.Clone(given), "")) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var err error
		if c.settings, err = loadSettings(c.Env); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.DeleteFunc(values(c), func(name string) bool { return slices.Contains(given, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// workloadNames are the live workloads, anyWorkloadNames those that have ended too.
func workloadNames(c *invocation) []string    { return c.workloadNames(false) }
func anyWorkloadNames(c *invocation) []string { return c.workloadNames(true) }

func (c *invocation) workloadNames(ended bool) []string {
	server := c.client()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	works, err := server.Workloads(ctx, ended)
	if err != nil {
		return nil
	}
	return unique(works, func(work api.Workload) string { return work.Spec.Name })
}

func queueNames(c *invocation) []string {
	server := c.client()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	queues, err := server.Queues(ctx)
	if err != nil {
		return nil
	}
	return unique(queues, func(queue api.Queue) string { return queue.Name })
}

func modelNames(c *invocation) []string {
	server := c.client()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	devices, err := server.Devices(ctx)
	if err != nil {
		return nil
	}
	return unique(devices, func(device api.Device) string { return device.Model })
}

// unique are the names of things, each once, in order.
func unique[T any](things []T, name func(T) string) []string {
	var out []string
	for _, thing := range things {
		if one := name(thing); !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	slices.Sort(out)
	return out
}
