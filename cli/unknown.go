package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// unknownCommand refuses a first word that is no command, and says what it may have been meant for.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see `" + cmd.CommandPath() + " --help`"
	if like := meant(cmd, args[0]); len(like) > 0 {
		path := cmd.CommandPath() + " "
		hint = "did you mean `" + path + strings.Join(like, "` or `"+path) + "`?"
	}
	return usagef("there is no command %q: %s", args[0], hint)
}

// unknownFirst refuses a word that is no command before anything is made of what follows it, which is another command's.
func unknownFirst(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasSubCommands() {
		return nil // what is wrong with that is said when it is carried out
	}
	for i := 0; i < len(rest); i++ {
		word := rest[i]
		if !strings.HasPrefix(word, "-") {
			if strings.HasPrefix(word, cobra.ShellCompRequestCmd) { // a shell's, and made later
				return nil
			}
			return unknownCommand(cmd, rest[i:])
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		flag := cmd.Flag(name)
		if flag == nil {
			return nil // and so is a wrong flag
		}
		if !hasValue && flag.NoOptDefVal == "" {
			i++
		}
	}
	return nil
}

// likeNames are words for what a command does that users of other programs know.
var likeNames = map[string][]string{
	"ps": {"status", "jobs", "squeue"}, "show": {"status", "info", "describe"}, "stop": {"kill", "cancel", "delete", "scancel"},
	"submit": {"sbatch", "enqueue"}, "run": {"exec", "start", "srun"}, "devices": {"gpus", "nodes"}, "remove": {"delete"}, "set": {"create", "add"},
}

// meant are the commands below cmd that word may have been meant for: those whose name, or a name that others have for them, is
// like it.
func meant(cmd *cobra.Command, word string) []string {
	names := map[string][]string{} // the commands that a word stands for
	words := &cobra.Command{SuggestionsMinimumDistance: 2}
	if len(word) <= 5 { // two other letters make another word of a short one
		words.SuggestionsMinimumDistance = 1
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		for _, name := range slices.Concat([]string{sub.Name()}, sub.Aliases, likeNames[sub.Name()]) {
			if names[name] == nil {
				words.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
			}
			names[name] = append(names[name], sub.Name())
		}
	}
	var like []string
	for _, name := range words.SuggestionsFor(word) {
		for _, one := range names[name] {
			if !slices.Contains(like, one) {
				like = append(like, one)
			}
		}
	}
	slices.Sort(like)
	return like
}

// helpCommand is `help`, which knows the commands that there are.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []string
			if cmd, rest, err := root.Find(given); err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, given []string) error {
			cmd, rest, err := root.Find(given)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(cmd, rest)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
