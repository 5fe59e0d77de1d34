# Completion of the kiln command for bash: eval "$(kiln completions bash)"

_kiln_lines() {
  COMPREPLY=()
  local line
  while IFS= read -r line; do COMPREPLY+=("$line"); done
}

_kiln() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local commands="ls show stats why compile verify warm prune clear record bake bundle push pull key sign devices tune emit config demo completions"
  local common="--dir --shared --json --color --verbose --help"
  local command="" directory=() i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == --dir ]]; then
      directory=(--dir "${COMP_WORDS[i + 1]}")
      ((i++))
    elif [[ ${COMP_WORDS[i]} == --device || ${COMP_WORDS[i]} == --color || ${COMP_WORDS[i]} == --shared ]]; then
      ((i++))
    # Bash splits a URL at its colons; the parts are not commands.
    elif [[ -z $command && " $commands " == *" ${COMP_WORDS[i]} "* ]]; then
      command=${COMP_WORDS[i]}
    fi
  done

  case $previous in
    --dir | --include | -I)
      compopt -o filenames
      _kiln_lines < <(compgen -d -- "$word")
      return
      ;;
    --color)
      _kiln_lines < <(compgen -W "auto always never" -- "$word")
      return
      ;;
    --sort)
      _kiln_lines < <(compgen -W "name size age" -- "$word")
      return
      ;;
    --device)
      _kiln_lines < <(compgen -W "opengl opencl vulkan cuda hip" -- "$word")
      return
      ;;
    --language)
      _kiln_lines < <(compgen -W "glsl vulkan opencl cuda hip spirv ptx cubin fatbin code_object" -- "$word")
      return
      ;;
    --max-age)
      _kiln_lines < <(compgen -W "7d 30d 90d 1y" -- "$word")
      return
      ;;
    --max-size)
      _kiln_lines < <(compgen -W "100MB 500MB 1GB" -- "$word")
      return
      ;;
    --min-compile-time)
      _kiln_lines < <(compgen -W "100ms 1s 10s" -- "$word")
      return
      ;;
    --budget)
      _kiln_lines < <(compgen -W "60s 10m 1h" -- "$word")
      return
      ;;
    --report | --key | --record | --bundle | --output | -o)
      compopt -o filenames
      _kiln_lines < <(compgen -f -- "$word")
      return
      ;;
    --prefer)
      _kiln_lines < <(compgen -W "first last" -- "$word")
      return
      ;;
    --api)
      _kiln_lines < <(compgen -W "opengl opencl vulkan cuda hip" -- "$word")
      return
      ;;
    --arch)
      _kiln_lines < <(compgen -W "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 gfx906 gfx90a gfx942 gfx1030 gfx1100" -- "$word")
      return
      ;;
    --target)
      _kiln_lines < <(compgen -W "cuda:all cuda:sm_80 cuda:sm_90 cuda:sm_120 hip:gfx90a hip:gfx1030 vulkan opengl:here opencl:here vulkan:here" -- "$word")
      return
      ;;
    --api)
      _kiln_lines < <(compgen -W "opengl opencl vulkan cuda hip" -- "$word")
      return
      ;;
    --shared | --jobs | --shape | --seed | --device-folder | --name | --define | -D | --option | --entry | --runs | --program)
      return
      ;;
  esac

  local options=""
  case $command in
    "")
      _kiln_lines < <(compgen -W "$commands $common --version" -- "$word")
      return
      ;;
    demo) options="--device --runs --preload --bundle" ;;
    devices | stats) options="--long" ;;
    emit)
      if [[ $word != -* ]]; then
        _kiln_lines < <(compgen -W "$(kiln emit 2>/dev/null)" -- "$word")
        return
      fi
      options="--language --record"
      ;;
    ls) options="--long --device-folder --sort" ;;
    show)
      if [[ $word != -* ]]; then
        _kiln_lines < <(compgen -W "$(kiln "${directory[@]}" ls --long 2>/dev/null | awk '/^[^ ]/ { print $1 }')" -- "$word")
        return
      fi
      options="--long"
      ;;
    why | compile)
      if [[ $word != -* ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="--name --define --include --option --entry --language --arch --device"
      ;;
    bake)
      if [[ $word != -* ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="--target --output --jobs --no-ptx --no-requests --no-compression --refresh --device"
      ;;
    verify) options="--repair --signatures" ;;
    push) options="--min-compile-time --rare --dry-run --jobs" ;;
    pull) options="--min-compile-time --dry-run --jobs" ;;
    key) options="new ls trust revoke" ;;
    record)
      if [[ $word != -* && $previous != record ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="ls show merge add --source --api --name --define --include --option --entry --language"
      ;;
    bundle)
      if [[ $word != -* && $previous != bundle ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="ls show verify merge split diff sign push pull --long --signed --prefer --target --api --program --no-requests --key --name"
      ;;
    sign)
      if [[ $word != -* ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="--key"
      ;;
    warm) options="--device --record" ;;
    tune)
      if [[ $previous == export || $previous == import ]]; then
        compopt -o filenames
        _kiln_lines < <(compgen -f -- "$word")
        return
      fi
      options="--shape --budget --seed --report --from-profile --device ls export import gemm gemm_nt gemm_tn gemm_tt weighted_matmul conv2d conv2d_winograd softmax flash_attention flash_attention_causal"
      [[ " ${COMP_WORDS[*]} " == *" tune ls "* ]] && options="--long --device"
      ;;
    prune) options="--max-age --max-size --dry-run" ;;
    clear) options="--device --yes --all-devices" ;;
    completions) options="bash zsh fish" ;;
  esac
  _kiln_lines < <(compgen -W "$options $common" -- "$word")
}

complete -F _kiln kiln
