# Completion of the kiln command for fish: kiln completions fish > ~/.config/fish/completions/kiln.fish

function __kiln_directory
    set -l words (commandline -opc)
    if set -l at (contains -i -- --dir $words)
        set -l next (math $at + 1)
        test $next -le (count $words); and printf '%s\n' --dir $words[$next]
    end
end

# Whether no command was written yet; the value of an option is none.
function __kiln_needs_command
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes
            set value no
        else if contains -- $word --dir --device --color
            set value yes
        else if not string match -q -- '-*' $word
            return 1
        end
    end
end

function __kiln_programs
    kiln (__kiln_directory) ls 2>/dev/null | awk 'NR > 1 { print $1 }'
end

complete -c kiln -f
complete -c kiln -l dir -x -a '(__fish_complete_directories)' -d 'The cache directory'
complete -c kiln -l json -d 'Print one JSON value'
complete -c kiln -l color -x -a 'auto always never' -d 'When to write colours'
complete -c kiln -s v -l verbose -d 'Tell what is being done'
complete -c kiln -s h -l help -d 'Print help'
complete -c kiln -n __kiln_needs_command -l version -d 'Print the version'

complete -c kiln -n __kiln_needs_command -a demo -d 'See programs compiled once and then loaded'
complete -c kiln -n __kiln_needs_command -a devices -d 'List the devices of this machine'
complete -c kiln -n __kiln_needs_command -a emit -d 'Print what a kernel of the demo becomes in a language'
complete -c kiln -n __kiln_needs_command -a ls -d 'List the stored programs of all devices'
complete -c kiln -n __kiln_needs_command -a show -d 'Show all that is known of a stored program'
complete -c kiln -n __kiln_needs_command -a stats -d 'Tell what the cache holds and has saved'
complete -c kiln -n __kiln_needs_command -a why -d 'Tell why a program would be found or compiled'
complete -c kiln -n __kiln_needs_command -a verify -d 'Check every stored program'
complete -c kiln -n __kiln_needs_command -a warm -d 'Load every stored program of a device'
complete -c kiln -n __kiln_needs_command -a tune -d 'Find the best variant of a kernel on this device'
complete -c kiln -n __kiln_needs_command -a prune -d 'Remove stored programs by age and by size'
complete -c kiln -n __kiln_needs_command -a clear -d 'Remove the stored programs of a device, or everything'
complete -c kiln -n __kiln_needs_command -a completions -d 'Print the completion script for a shell'

complete -c kiln -n '__fish_seen_subcommand_from demo warm tune clear why' -l device -x -a 'opengl opencl vulkan cuda hip' -d 'The device'
complete -c kiln -n '__fish_seen_subcommand_from demo' -l runs -x -d 'How many processes run warm'
complete -c kiln -n '__fish_seen_subcommand_from emit' -a '(kiln emit 2>/dev/null)'
complete -c kiln -n '__fish_seen_subcommand_from emit' -l language -x -a 'glsl opencl cuda hip vulkan' -d 'The language'
complete -c kiln -n '__fish_seen_subcommand_from ls' -l device-folder -x -d 'Only folders with this text in their name'
complete -c kiln -n '__fish_seen_subcommand_from ls' -l sort -x -a 'name size age' -d 'The order'
complete -c kiln -n '__fish_seen_subcommand_from show' -a '(__kiln_programs)'
complete -c kiln -n '__fish_seen_subcommand_from why' -F
complete -c kiln -n '__fish_seen_subcommand_from why' -l name -x -d 'The name of the program'
complete -c kiln -n '__fish_seen_subcommand_from why' -s D -l define -x -d 'A define, NAME=VALUE'
complete -c kiln -n '__fish_seen_subcommand_from why' -s I -l include -x -a '(__fish_complete_directories)' -d 'A folder for #include'
complete -c kiln -n '__fish_seen_subcommand_from why' -l option -x -d 'A compiler option'
complete -c kiln -n '__fish_seen_subcommand_from why' -l entry -x -d 'The entry point'
complete -c kiln -n '__fish_seen_subcommand_from why' -l language -x -a 'glsl opencl cuda hip vulkan' -d 'Ask a device of this language'
complete -c kiln -n '__fish_seen_subcommand_from verify' -l repair -d 'Remove what is damaged, rewrite what is wrong'
complete -c kiln -n '__fish_seen_subcommand_from tune' -a 'ls export import gemm gemm_nt gemm_tn gemm_tt weighted_matmul conv2d softmax flash_attention flash_attention_causal'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l shape -x -d 'Its sizes'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l budget -x -a '60s 10m 1h' -d 'How long to look for it'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l seed -x -d 'Where chance begins'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l report -r -d 'A page with a plot of the search'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l from-profile -d 'Tune what was called on this device'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l max-age -x -a '7d 30d 90d 1y' -d 'Remove what was not used for longer'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l max-size -x -a '100MB 500MB 1GB' -d 'Keep no more than this'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l dry-run -d 'Tell what would be removed'
complete -c kiln -n '__fish_seen_subcommand_from clear' -s y -l yes -d 'Do not ask'
complete -c kiln -n '__fish_seen_subcommand_from clear' -l all-devices -d 'Everything in the directory'
complete -c kiln -n '__fish_seen_subcommand_from completions' -a 'bash zsh fish'
