# Completion of ibvexp(1) for bash.
_ibvexp() {
	local cur prev words cword
	_init_completion || return
	local i
	if [[ ${words[1]} =~ ^(run|vm|doctor)$ ]]; then
		# The program begins at the first word that is no option of ours.
		for ((i = 2; i <= cword; i++)); do
			case ${words[i]} in
				--) ((i < cword)) && { _command_offset $((i + 1)); return; } ;;
				--device | --beyond | --trace | --report) ((i++)) ;;
				-*) ;;
				*) ((i < cword)) && { _command_offset $i; return; } ;;
			esac
		done
	fi
	if ((cword == 1)); then
		COMPREPLY=($(compgen -W 'run audit migrate doctor verify fabric vm matrix --help --version' -- "$cur"))
		return
	fi
	case ${words[1]}$prev in
		run--device | verify--device)
			COMPREPLY=($(compgen -W "soft $(ls /sys/class/infiniband 2>/dev/null)" -- "$cur"))
			return ;;
		fabricfabric) COMPREPLY=($(compgen -W 'list clean' -- "$cur")); return ;;
		doctor--device) COMPREPLY=($(compgen -W soft -- "$cur")); return ;;
		run--trace | run--report | verify--json | verify--junit | verify--report | audit--json | audit--sarif | audit--html | audit--baseline | audit--config | audit--diff | migrate--report) _filedir; return ;;
		migrate-p) _filedir -d; return ;;
		verify--link) COMPREPLY=($(compgen -W "ib eth" -- "$cur")); return ;;
		vm--kernel) COMPREPLY=($(compgen -W '6.1 6.12 newest' -- "$cur")); [[ ${COMPREPLY[0]-} ]] || _filedir; return ;;
		vm--link) COMPREPLY=($(compgen -W "ib eth" -- "$cur")); return ;;
		vm--write | vm--modules | vm--logs | vm--cache) _filedir -d; return ;;
		audit--fail-on)
			COMPREPLY=($(compgen -W 'refused beyond private unjudged any' -- "$cur"))
			return ;;
		audit--format)
			COMPREPLY=($(compgen -W 'table json sarif html gcc github md csv' -- "$cur"))
			return ;;
		audit--color) COMPREPLY=($(compgen -W 'auto always never' -- "$cur")); return ;;
	esac
	if [[ $cur == -* ]]; then
		# What the command itself says.
		COMPREPLY=($(compgen -W "$("${words[0]}" "${words[1]}" --help 2>/dev/null |
			grep -oE '(^|[ ,])--[a-z-]+' | tr -d ' ,') --" -- "$cur"))
		return
	fi
	[[ ${words[1]} == audit || ${words[1]} == migrate ]] && _filedir
} && complete -F _ibvexp ibvexp
