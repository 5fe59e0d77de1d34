# Completion of the kiln command for fish: kiln completions fish > ~/.config/fish/completions/kiln.fish

function __kiln_directory
    set -l words (commandline -opc)
    if set -l at (contains -i -- --dir $words)
        set -l next (math $at + 1)
        test $next -le (count $words); and printf '%s\n' --dir $words[$next]
    end
end

# Whether the command line has no command yet. The value of an option is not a command.
function __kiln_needs_command
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes
            set value no
        else if contains -- $word --dir --shared --device --color
            set value yes
        else if not string match -q -- '-*' $word
            return 1
        end
    end
end

function __kiln_programs
    kiln (__kiln_directory) ls --long 2>/dev/null | awk '/^[^ ]/ { print $1 }'
end

complete -c kiln -f
complete -c kiln -l dir -x -a '(__fish_complete_directories)' -d 'Use this cache directory'
complete -c kiln -l shared -x -a 'none file:// http:// https:// redis:// rediss:// redis+unix:// s3://' -d 'Use this shared store'
complete -c kiln -l json -d 'Print JSON instead of text'
complete -c kiln -l color -x -a 'auto always never' -d 'Use colours'
complete -c kiln -s v -l verbose -d 'Log to standard error'
complete -c kiln -s h -l help -d 'Print help'
complete -c kiln -n __kiln_needs_command -l version -d 'Print the version'

complete -c kiln -n __kiln_needs_command -a config -d 'Show the effective settings and where each comes from'
complete -c kiln -n __kiln_needs_command -a demo -d 'Compile sample programs, load them, and compare the times'
complete -c kiln -n __kiln_needs_command -a devices -d 'List the GPU devices of this machine'
complete -c kiln -n __kiln_needs_command -a emit -d 'Print the source of a demo kernel in a language'
complete -c kiln -n __kiln_needs_command -a ls -d 'List the stored programs of all devices'
complete -c kiln -n __kiln_needs_command -a show -d 'Show all details of a stored program'
complete -c kiln -n __kiln_needs_command -a stats -d 'Show how many programs are stored and what they saved'
complete -c kiln -n __kiln_needs_command -a why -d 'Explain why a program is found or compiled again'
complete -c kiln -n __kiln_needs_command -a compile -d 'Compile source files and store them in the cache'
complete -c kiln -n __kiln_needs_command -a verify -d 'Check all stored programs for damage'
complete -c kiln -n __kiln_needs_command -a warm -d 'Load all stored programs of a device with its driver'
complete -c kiln -n __kiln_needs_command -a tune -d 'Find and store the fastest variant of a kernel'
complete -c kiln -n __kiln_needs_command -a prune -d 'Remove old programs, or reduce the cache to a size'
complete -c kiln -n __kiln_needs_command -a clear -d 'Remove all stored programs of a device or of all devices'
complete -c kiln -n __kiln_needs_command -a record -d 'List, show, merge and extend the records of requests'
complete -c kiln -n __kiln_needs_command -a bake -d 'Compile a record for GPUs that need not be present'
complete -c kiln -n __kiln_needs_command -a bundle -d 'List, check, merge, sign, push and pull bundles of programs'
complete -c kiln -n __kiln_needs_command -a push -d 'Upload stored programs to a shared store'
complete -c kiln -n __kiln_needs_command -a pull -d 'Download the programs of a shared store'
complete -c kiln -n __kiln_needs_command -a key -d 'Make, list, trust and revoke signing keys'
complete -c kiln -n __kiln_needs_command -a sign -d 'Sign stored programs'
complete -c kiln -n __kiln_needs_command -a completions -d 'Print the completion script for a shell'

complete -c kiln -n '__fish_seen_subcommand_from demo warm tune clear why compile bake' -l device -x -a 'opengl opencl vulkan cuda hip' -d 'The device'
complete -c kiln -n '__fish_seen_subcommand_from warm' -l record -r -d 'Programs to fetch and load'
complete -c kiln -n '__fish_seen_subcommand_from demo' -l runs -x -d 'Number of processes with a warm cache'
complete -c kiln -n '__fish_seen_subcommand_from demo' -l preload -d 'Get all programs at once'
complete -c kiln -n '__fish_seen_subcommand_from demo' -l bundle -r -d 'Use the programs of this bundle'
complete -c kiln -n '__fish_seen_subcommand_from devices ls stats show' -s l -l long -d 'Show all details'
complete -c kiln -n '__fish_seen_subcommand_from emit' -a '(kiln emit 2>/dev/null)'
complete -c kiln -n '__fish_seen_subcommand_from emit' -l language -x -a 'glsl opencl cuda hip vulkan' -d 'The language'
complete -c kiln -n '__fish_seen_subcommand_from emit' -l record -r -d 'Add the requests to this record'
complete -c kiln -n '__fish_seen_subcommand_from ls' -l device-folder -x -d 'List only device folders with this text in their name'
complete -c kiln -n '__fish_seen_subcommand_from ls' -l sort -x -a 'name size age' -d 'The order'
complete -c kiln -n '__fish_seen_subcommand_from show' -a '(__kiln_programs)'
complete -c kiln -n '__fish_seen_subcommand_from why compile' -F
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -l name -x -d 'Name of the program'
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -s D -l define -x -d 'Define a macro, NAME=VALUE'
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -s I -l include -x -a '(__fish_complete_directories)' -d 'Add a folder for #include'
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -l option -x -d 'Add a compiler option'
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -l entry -x -d 'Entry point'
complete -c kiln -n '__fish_seen_subcommand_from why compile record' -l language -x -a 'glsl vulkan opencl cuda hip spirv ptx cubin fatbin code_object' -d 'Language of the file'
complete -c kiln -n '__fish_seen_subcommand_from why compile' -l arch -x -a 'sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 gfx906 gfx90a gfx942 gfx1030 gfx1100' -d 'A GPU that need not be present'
complete -c kiln -n '__fish_seen_subcommand_from verify' -l repair -d 'Remove damaged entries, rewrite wrong files'
complete -c kiln -n '__fish_seen_subcommand_from verify' -l signatures -d 'List who signed each entry'
complete -c kiln -n '__fish_seen_subcommand_from record' -a 'ls show merge add' -F
complete -c kiln -n '__fish_seen_subcommand_from record' -l source -d 'Print only the source'
complete -c kiln -n '__fish_seen_subcommand_from record' -l api -x -a 'opengl opencl vulkan cuda hip' -d 'For devices of this API'
complete -c kiln -n '__fish_seen_subcommand_from bake' -F
complete -c kiln -n '__fish_seen_subcommand_from bake' -l target -x -a 'cuda:all cuda:sm_80 cuda:sm_90 cuda:sm_120 hip:gfx90a hip:gfx1030 vulkan opengl:here opencl:here vulkan:here' -d 'What to compile for'
complete -c kiln -n '__fish_seen_subcommand_from bake' -s o -l output -r -d 'The bundle that is written'
complete -c kiln -n '__fish_seen_subcommand_from bake' -l jobs -x -d 'How many programs to compile at once'
complete -c kiln -n '__fish_seen_subcommand_from bake' -l no-ptx -d 'Add no PTX for future GPUs'
complete -c kiln -n '__fish_seen_subcommand_from bake' -l no-requests -d 'Add no requests'
complete -c kiln -n '__fish_seen_subcommand_from bake' -l no-compression -d 'Do not compress the programs'
complete -c kiln -n '__fish_seen_subcommand_from bake' -l refresh -d 'Compile into the cache for the devices of this machine'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -a 'ls show verify merge split diff sign push pull oci:// oci+http://' -F
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l signed -d 'Require a signature by a trusted key'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l prefer -x -a 'first last' -d 'Which bytes to take if bundles differ'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l target -x -d 'Only programs for this target'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l api -x -a 'opengl opencl vulkan cuda hip' -d 'Only programs for this API'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l program -x -d 'Only this program'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l no-requests -d 'Leave out the requests'
complete -c kiln -n '__fish_seen_subcommand_from bundle' -l name -x -d 'The name in a shared store'
complete -c kiln -n '__fish_seen_subcommand_from push pull; and not __fish_seen_subcommand_from bundle' -x -a 'file:// http:// https:// redis:// rediss:// redis+unix:// s3://'
complete -c kiln -n '__fish_seen_subcommand_from push pull; and not __fish_seen_subcommand_from bundle' -l min-compile-time -x -a '100ms 1s 10s' -d 'Only programs that took at least this long to compile'
complete -c kiln -n '__fish_seen_subcommand_from push pull; and not __fish_seen_subcommand_from bundle' -l dry-run -d 'Only show what would be transferred'
complete -c kiln -n '__fish_seen_subcommand_from push pull; and not __fish_seen_subcommand_from bundle' -l jobs -x -d 'How many programs to transfer at once'
complete -c kiln -n '__fish_seen_subcommand_from push; and not __fish_seen_subcommand_from bundle' -l rare -d 'Only programs that were not loaded for 7 days'
complete -c kiln -n '__fish_seen_subcommand_from key' -a 'new ls trust revoke'
complete -c kiln -n '__fish_seen_subcommand_from key sign' -F
complete -c kiln -n '__fish_seen_subcommand_from sign bundle' -l key -r -d 'Sign with this private key'
complete -c kiln -n '__fish_seen_subcommand_from tune' -a 'ls export import gemm gemm_nt gemm_tn gemm_tt weighted_matmul conv2d conv2d_winograd softmax flash_attention flash_attention_causal'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l shape -x -d 'Sizes of the call'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l budget -x -a '60s 10m 1h' -d 'Time limit of the search'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l seed -x -d 'Random seed'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l report -r -d 'Write a plot of the search to this file'
complete -c kiln -n '__fish_seen_subcommand_from tune' -l from-profile -d 'Tune the calls that applications made'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l max-age -x -a '7d 30d 90d 1y' -d 'Remove programs not used for this long'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l max-size -x -a '100MB 500MB 1GB' -d 'Reduce the cache to this size'
complete -c kiln -n '__fish_seen_subcommand_from prune' -l dry-run -d 'Print the result, but remove nothing'
complete -c kiln -n '__fish_seen_subcommand_from clear' -s y -l yes -d 'Do not ask for confirmation'
complete -c kiln -n '__fish_seen_subcommand_from clear' -l all-devices -d 'Remove the programs of all devices'
complete -c kiln -n '__fish_seen_subcommand_from completions' -a 'bash zsh fish'
