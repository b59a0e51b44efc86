/* hooks_of_its_own.c: The hooks are functions of this file, which call those of tasks 3 and 4. */
// ==== api.c
static Status before_forward(Module *module, void *arg)
{
    return fsdp_pre_forward(module, arg);
}

static Status after_forward(Module *module, void *arg)
{
    return fsdp_post_forward(module, arg);
}

static Status before_backward(Module *module, void *arg)
{
    return fsdp_pre_backward(module, arg);
}

static Status after_backward(Module *module, void *arg)
{
    return fsdp_post_backward(module, arg);
}

static Status install_hooks(FsdpUnit *unit)
{
    Module *m = unit->module;
    unit->hooks[HOOK_PRE_FORWARD] = module_add_hook(m, HOOK_PRE_FORWARD, before_forward, unit);
    unit->hooks[HOOK_POST_FORWARD] = module_add_hook(m, HOOK_POST_FORWARD, after_forward, unit);
    unit->hooks[HOOK_PRE_BACKWARD] = module_add_hook(m, HOOK_PRE_BACKWARD, before_backward, unit);
    unit->hooks[HOOK_POST_BACKWARD] = module_add_hook(m, HOOK_POST_BACKWARD, after_backward, unit);
    for (int i = 0; i < HOOK_POINTS; i++)
        if (unit->hooks[i] == NULL) return ERR_MEMORY;
    return OK;
}
