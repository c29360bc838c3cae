-- Holds new jobs for cpdispatch while its driver lives, and marks them.
-- Made by `cpdispatch slurm plugin`; copy it beside slurm.conf, which needs JobSubmitPlugins=lua.

local ALIVE = "@ALIVE@"
local MARK = "@MARK@"
local STALE_S = @STALE@
local DRIVER = @USER@

-- Whether the driver has given a sign of life lately, the one partition that it is for, and the
-- jobs that others hold, with a space before and after each.
local function driving()
   local file = io.open(ALIVE, "r")
   if file == nil then
      return false, "", ""
   end
   local seconds = tonumber(file:read("*l") or "")
   local partition = file:read("*l") or ""
   local kept = file:read("*l") or ""
   file:close()
   -- One from the future is as little worth as an old one: the clock was set back.
   return seconds ~= nil and math.abs(os.time() - seconds) <= STALE_S, partition, kept
end

local function default_partition(part_list)
   for name, partition in pairs(part_list) do
      if partition.flag_default == 1 then
         return name
      end
   end
   return ""
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local alive, partition = driving()
   -- A job that its user holds stays the user's.
   if not alive or job_desc.priority == 0 then
      return slurm.SUCCESS
   end
   if partition ~= "" and (job_desc.partition or default_partition(part_list)) ~= partition then
      return slurm.SUCCESS
   end
   job_desc.priority = 0
   job_desc.admin_comment = MARK .. (job_desc.req_nodes and " " .. job_desc.req_nodes or "")
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local marked = string.match(job_rec.admin_comment or "", "^%S*") == MARK
   local said = job_desc.admin_comment
   -- An administrator who writes a comment replaces the mark: it stays before that.
   if marked and said ~= nil and string.match(said, "^%S*") ~= MARK then
      local nodes = string.match(job_rec.admin_comment, "^%S* (%S*)") or ""
      job_desc.admin_comment = MARK .. " " .. nodes .. " " .. said
   end
   local priority, nice = job_desc.priority, job_desc.nice
   -- Slurm gives a held job a priority, and so releases it, when it is made more or less nice.
   local nicer = nice ~= nil and nice ~= slurm.NO_VAL
   local asked = nicer or (priority ~= nil and priority ~= slurm.NO_VAL)
   if modify_uid == 0 or modify_uid == DRIVER or not asked then
      return slurm.SUCCESS
   end
   local alive, _, kept = driving()
   -- Slurm's numbers are floats to later releases of Lua: joined to a text they end in ".0".
   if not alive or string.find(kept, string.format(" %d ", job_rec.job_id), 1, true) then
      return slurm.SUCCESS
   end
   if marked and job_rec.priority == 0 then
      slurm.log_info("job %u: held and released by cpdispatch alone", job_rec.job_id)
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
